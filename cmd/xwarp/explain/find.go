package explain

import (
	"encoding/hex"
	"slices"
	"strconv"
	"strings"

	"xwarp/ddp/rdmap"
)

// maxQuery bounds the length of a query, in bytes.
const maxQuery = 16 << 10

// Find returns the entries that match query, the best match first, or nil if there are none. query is a Terminate as
// layer/type/code ("2/0/2", code in hexadecimal) or as bytes of its header ("20 02", "0x2002", "20020000"), a name
// ("WR_FLUSH_ERR", "IBV_WC_RETRY_EXC_ERR", "RDMA_CM_EVENT_REJECTED", "ENOMEM"), a number ("5": a completion status or
// an MPA error), a log line, or words ("crc mismatch", "bounds").
func Find(query string) []Entry {
	q := strings.TrimSpace(query)
	if q == "" || len(q) > maxQuery {
		return nil
	}
	low := strings.ToLower(strings.TrimPrefix(q, "tcp: "))
	for _, by := range []func(string) []Entry{bySlashes, byName, byCounter, byMessage, byNumber,
		byWireBytes, byWords} {
		if e := by(low); len(e) > 0 {
			return e
		}
	}
	return nil
}

func bySlashes(q string) []Entry {
	if c, ok := causeOf(q); ok {
		return []Entry{ForCause(c)}
	}
	return nil
}

// byWireBytes parses the first bytes of a Terminate header.
func byWireBytes(q string) []Entry {
	clean := strings.NewReplacer("0x", "", " ", "", ":", "", ",", "").Replace(q)
	b, err := hex.DecodeString(clean)
	if err != nil || len(b) < 2 {
		return nil
	}
	for len(b) < 4 {
		b = append(b, 0)
	}
	t, err := rdmap.ParseTerminate(b)
	if err != nil {
		return nil
	}
	e := ForCause(t.Cause)
	if t.Swapped {
		e.Note = "the fields are in the order of Linux siw, which swaps the nibbles of the first " +
			"byte and puts the flags at the wrong end of the third; RFC 5040 begins it with " + e.Bytes
	}
	return []Entry{e}
}

func byName(q string) []Entry {
	for _, e := range append(All(), unusedStatuses()...) {
		code := strings.ToLower(e.Code)
		if code == q || strings.ToLower(e.Name) == q || code == "rdma_cm_event_"+q {
			return []Entry{e}
		}
	}
	return nil
}

// byMessage finds the message in a whole log line, as text or as JSON.
func byMessage(q string) []Entry {
	for _, e := range slices.Concat(messages(), events()) {
		code := strings.ToLower(e.Code)
		for _, form := range []string{`msg="` + code + `"`, "msg=" + code + " ", `"msg":"` + code +
			`"`} {
			if strings.Contains(q+" ", form) {
				return []Entry{e}
			}
		}
	}
	return nil
}

// byNumber interprets a number as a completion status of libibverbs and as an MPA error.
func byNumber(q string) (list []Entry) {
	n, err := strconv.Atoi(q)
	if err != nil || len(q) > 2 {
		return nil
	}
	for _, e := range slices.Concat(statuses(), unusedStatuses()) {
		if e.Number == n {
			list = append(list, e)
		}
	}
	if e, ok := listed(mpaCause(uint8(n))); ok && n > 0 {
		list = append(list, e)
	}
	return list
}

// byWords returns the entries that contain every word in their code or name; if there are none, those that contain
// every word in their code, name or meaning.
func byWords(q string) []Entry {
	words := strings.Fields(q)
	var inName, inText []Entry
	for _, e := range append(All(), unusedStatuses()...) {
		name := strings.ToLower(e.Code + " " + e.Name)
		switch {
		case containsAll(name, words):
			inName = append(inName, e)
		case containsAll(name+" "+strings.ToLower(e.Meaning), words):
			inText = append(inText, e)
		}
	}
	if len(inName) > 0 {
		return inName
	}
	return inText
}

func containsAll(s string, words []string) bool {
	for _, w := range words {
		if len(w) < 3 || !strings.Contains(s, w) {
			return false
		}
	}
	return true
}
