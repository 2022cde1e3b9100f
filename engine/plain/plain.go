// Package plain makes text fit to be printed. Programs, peers, files and interfaces have the names that
// somebody gave them, and a terminal does what escape sequences in them say, a log believes the lines that
// they begin.
package plain

import (
	"encoding/json"
	"fmt"
	"io"
	"reflect"
	"strconv"
	"strings"
	"unicode/utf16"
	"unicode/utf8"
)

// Line returns s for a line of output: what cannot be seen, line ends too, stands there as a Go string literal has it.
func Line(s string) string { return escape(s, "") }

// Text returns s for output of several lines, such as an error of several: line ends and tabs stay.
func Text(s string) string { return escape(s, "\n\t") }

// Field returns s as one word: quoted when it is empty, when there is a space or a quote in it, or what cannot be seen.
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
	for i, n := 0, 0; i < len(s); i += n {
		var r rune
		r, n = utf8.DecodeRuneInString(s[i:])
		switch {
		case fine(r, n, keep):
			b.WriteString(s[i : i+n])
		default:
			q := strconv.Quote(s[i : i+n])
			b.WriteString(q[1 : len(q)-1])
		}
	}
	return b.String()
}

func clean(s, keep string) bool {
	for i, n := 0, 0; i < len(s); i += n {
		var r rune
		if r, n = utf8.DecodeRuneInString(s[i:]); !fine(r, n, keep) {
			return false
		}
	}
	return true
}

// fine reports whether a character of n octets may be printed.
func fine(r rune, n int, keep string) bool {
	return strconv.IsPrint(r) && (r != utf8.RuneError || n > 1) || r < utf8.RuneSelf &&
		strings.IndexByte(keep, byte(r)) >= 0
}

// JSON returns a writer of JSON to w: characters that cannot be seen and which encoding/json leaves, such as
// C1 controls, become escapes of JSON. Each Write must have whole characters.
func JSON(w io.Writer) io.Writer { return jsonWriter{w} }

// WriteJSON writes v as JSON, indented.
func WriteJSON(w io.Writer, v any) error {
	e := json.NewEncoder(JSON(w))
	e.SetIndent("", "  ")
	return e.Encode(v)
}

// OnOff is a switch in words.
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
	for i, n := 0, 0; i < len(p); i += n {
		var r rune
		r, n = utf8.DecodeRune(p[i:])
		if fine(r, n, "\n\t") {
			b = append(b, p[i:i+n]...)
			continue
		}
		for _, u := range utf16.Encode([]rune{r}) {
			b = append(b, `\u`...)
			b = append(b, strconv.FormatUint(0x10000+uint64(u), 16)[1:]...)
		}
	}
	if _, err := j.w.Write(b); err != nil {
		return 0, err
	}
	return len(p), nil
}

// Fprintf is fmt.Fprintf with each string and error among args as Line has it.
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
