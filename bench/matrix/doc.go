// Package matrix is the standard set of measurements, what is made of them, and the check against earlier ones.
//
// A case is one topology with several variants. In every round each variant runs once, in an order that turns
// from round to round, and ratios are taken within a round: what disturbs the machine for a while disturbs
// both sides of a ratio. Medians over rounds are reported with the smallest and the largest.
package matrix
