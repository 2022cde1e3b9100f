// Package plain makes text safe to print. Names of programs, peers, files and interfaces are untrusted: they may
// contain escape sequences that a terminal executes, or line ends that forge log lines.
package plain

import (
	"encoding/json"
	"fmt"
	"io"
	"iter"
	"reflect"
	"strconv"
	"strings"
	"unicode/utf16"
	"unicode/utf8"
)

// Line returns s for one line of output: unprintable characters, including line ends, are escaped as in Go strings.
func Line(s string) string { return escape(s, "") }

// Text returns s for output of several lines, such as joined errors: it escapes like Line, but keeps line ends and
// tabs.
func Text(s string) string { return escape(s, "\n\t") }

// Field returns s as one word: quoted if it is empty or contains a space, quote, backslash or unprintable character.
func Field(s string) string {
	if s == "" || strings.ContainsAny(s, ` "\`) || Line(s) != s {
		return strconv.Quote(s)
	}
	return s
}

func escape(s, keep string) string {
	if clean(s, keep) {
		return s
	}
	var b strings.Builder
	for c, fine := range characters(s, keep) {
		if !fine {
			c = strconv.Quote(c)
			c = c[1 : len(c)-1]
		}
		b.WriteString(c)
	}
	return b.String()
}

func clean(s, keep string) bool {
	for _, fine := range characters(s, keep) {
		if !fine {
			return false
		}
	}
	return true
}

// characters yields the characters of s, and whether each may be printed.
func characters(s, keep string) iter.Seq2[string, bool] {
	return func(yield func(string, bool) bool) {
		for len(s) > 0 {
			r, n := utf8.DecodeRuneInString(s)
			fine := strconv.IsPrint(r) && (r != utf8.RuneError || n > 1) || r < utf8.RuneSelf &&
				strings.IndexByte(keep, byte(r)) >= 0
			if !yield(s[:n], fine) {
				return
			}
			s = s[n:]
		}
	}
}

// JSON returns a writer of JSON to w. It escapes unprintable characters that encoding/json leaves, such as C1 controls.
// Each Write must contain whole characters.
func JSON(w io.Writer) io.Writer { return jsonWriter{w} }

// WriteJSON writes v as JSON, indented.
func WriteJSON(w io.Writer, v any) error {
	e := json.NewEncoder(JSON(w))
	e.SetIndent("", "  ")
	return e.Encode(v)
}

// OnOff returns "on" or "off".
func OnOff(on bool) string {
	if on {
		return "on"
	}
	return "off"
}

type jsonWriter struct{ w io.Writer }

func (j jsonWriter) Write(p []byte) (int, error) {
	if clean(string(p), "\n\t") {
		return j.w.Write(p)
	}
	var b []byte
	for c, fine := range characters(string(p), "\n\t") {
		if fine {
			b = append(b, c...)
			continue
		}
		for _, u := range utf16.Encode([]rune(c)) {
			b = append(b, `\u`...)
			b = append(b, strconv.FormatUint(0x10000+uint64(u), 16)[1:]...)
		}
	}
	if _, err := j.w.Write(b); err != nil {
		return 0, err
	}
	return len(p), nil
}

// Fprintf is fmt.Fprintf with Line applied to each error and each value of a string type among args.
func Fprintf(w io.Writer, format string, args ...any) (int, error) {
	safe := make([]any, len(args))
	for i, a := range args {
		switch v := a.(type) {
		case string:
			a = Line(v)
		case error:
			a = Line(v.Error())
		default:
			if r := reflect.ValueOf(a); r.Kind() == reflect.String {
				a = Line(r.String())
			}
		}
		safe[i] = a
	}
	return fmt.Fprintf(w, format, safe...)
}
