package main

import (
	"fmt"
	"regexp"
	"strings"
)

// maxSentence is the maximum number of words of a sentence in Markdown. A piece of code counts as one word.
const maxSentence = 30

var (
	inlineCode  = regexp.MustCompile("`[^`]*`")
	target      = regexp.MustCompile(`\]\([^)]*\)`)
	newBlock    = regexp.MustCompile(`^\s*([-*]|\d+\.|#+|>) `)
	sentenceEnd = regexp.MustCompile(`[.!?:;]["*)]*\s`)
	cellEnd     = regexp.MustCompile(`[.!?:;,|]\s`)
)

// findLongSentences returns a fault for each sentence of more than maxSentence words in the paragraphs, lists and
// tables of a Markdown text. A colon or a semicolon also ends a sentence, and in a table a comma, because cells often
// enumerate.
func findLongSentences(name, text string) (faults []string) {
	var block strings.Builder
	n, start, fenced := 0, 0, false
	flush := func(end *regexp.Regexp) {
		plain := target.ReplaceAllString(inlineCode.ReplaceAllString(block.String(), "code"), "]")
		for _, s := range end.Split(plain, -1) {
			if words := strings.Fields(s); len(words) > maxSentence {
				faults = append(faults, fmt.Sprintf("%s:%d: a sentence of %d words, "+
					"at most %d: %s …", name, start, len(words), maxSentence,
					strings.Join(words[:6], " ")))
			}
		}
		block.Reset()
	}
	for line := range strings.Lines(text) {
		n++
		isFence := strings.HasPrefix(strings.TrimSpace(line), "```")
		isCode := fenced || isFence || strings.HasPrefix(line, "    ")
		if isFence {
			fenced = !fenced
		}
		isTable := strings.HasPrefix(line, "|")
		isBlank := strings.TrimSpace(line) == ""
		if isCode || isTable || isBlank || newBlock.MatchString(line) {
			flush(sentenceEnd)
		}
		if isCode || isBlank || quotesRFC.MatchString(line) {
			continue
		}
		if block.Len() == 0 {
			start = n
		}
		block.WriteString(line)
		if isTable {
			flush(cellEnd)
		}
	}
	flush(sentenceEnd)
	return faults
}
