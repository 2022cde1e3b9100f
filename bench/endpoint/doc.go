// Package endpoint is the two ends of a measurement: RDMA over the engine, and the peers that it is compared with.
//
// A client tells a server over a control connection what to measure; both prepare, the client runs, and both
// say what they saw. The control connection is a kernel socket and idle while the clock runs.
package endpoint
