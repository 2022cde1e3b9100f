package explain

import (
	"encoding/hex"
	"regexp"
	"strconv"
	"strings"

	"xwarp/ddp"
	"xwarp/ddp/rdmap"
	"xwarp/mpa/ulpdu"
)

// maxQuery bounds what Find looks at.
const maxQuery = 200

// Find returns what query may mean, the likeliest first; nothing when it is no code. It takes a Terminate as
// layer/type/code ("2/0/2", code in hexadecimal), as octets of its header ("20 02", "0x2002", "20020000"),
// names ("WR_FLUSH_ERR", "IBV_WC_RETRY_EXC_ERR", "RDMA_CM_EVENT_REJECTED", "ENOMEM"), numbers ("5": a
// completion status or an MPA error), and words ("crc mismatch", "bounds").
func Find(query string) []Entry {
	q := strings.TrimSpace(query)
	if q == "" || len(q) > maxQuery {
		return nil
	}
	low := strings.ToLower(strings.TrimPrefix(q, "tcp: "))
	if e := bySlashes(low); e != nil {
		return e
	}
	if e := byName(low); e != nil {
		return e
	}
	if e := byMessage(low); e != nil {
		return e
	}
	if e := byNumber(low); e != nil {
		return e
	}
	if e := byOctets(low); e != nil {
		return e
	}
	return byWords(low)
}

// slashes is layer/type/code, alone or in a line of a log.
var slashes = regexp.MustCompile(`\b([0-9]|1[0-5])/([0-9]|1[0-5])/(?:0x)?([0-9a-f]{1,2})\b`)

func bySlashes(q string) []Entry {
	m := slashes.FindStringSubmatch(q)
	if m == nil {
		return nil
	}
	layer, _ := strconv.Atoi(m[1])
	typ, _ := strconv.Atoi(m[2])
	code, _ := strconv.ParseUint(m[3], 16, 8)
	return []Entry{ForCause(ddp.MakeCause(ulpdu.Layer(layer), uint8(typ), uint8(code)))}
}

// ForCause explains the code of a Terminate, known or not.
func ForCause(c ddp.Cause) Entry {
	for _, e := range terminates() {
		if e.cause == c {
			return e
		}
	}
	if name, ok := rdmap.Describe(c); ok { // local catastrophic: any code
		return terminate(c, name, terminateTexts[rdmap.CauseCatastrophic])
	}
	if c.Layer() == ulpdu.MPA && c.Type() != 0 {
		if _, ok := terminateTexts[mpaCause(c.Code())]; ok {
			e := ForCause(mpaCause(c.Code()))
			e.Note = "MPA errors have type 0; some Chelsio adapters send type 3, and mean the same"
			return e
		}
	}
	return unknown(c)
}

// byOctets reads the first octets of a Terminate header.
func byOctets(q string) []Entry {
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
		e.Note = "the fields are in the order of Linux siw, which exchanges the halves of the " +
			"first octet and the ends of the third; in the order of RFC 5040 it begins " + e.Octets
	}
	return []Entry{e}
}

func byName(q string) []Entry {
	for _, e := range All() {
		if strings.ToLower(e.Code) == q || strings.ToLower(e.Name) == q {
			return []Entry{e}
		}
	}
	for _, e := range foreign {
		if strings.ToLower(e.Code) == q || strings.ToLower(e.Name) == q {
			return []Entry{e}
		}
	}
	for _, e := range events {
		if strings.ToLower(strings.TrimPrefix(e.Code, "RDMA_CM_EVENT_")) == q {
			return []Entry{e}
		}
	}
	return nil
}

// byNumber takes a bare number as a completion status of libibverbs, and as an MPA error.
func byNumber(q string) (list []Entry) {
	n, err := strconv.Atoi(q)
	if err != nil || len(q) > 2 {
		return nil
	}
	for _, e := range append(statuses(), foreign...) {
		if e.Number == n {
			list = append(list, e)
		}
	}
	if _, ok := terminateTexts[mpaCause(uint8(n))]; ok && n > 0 {
		list = append(list, ForCause(mpaCause(uint8(n))))
	}
	return list
}

// byWords returns the entries that contain every word in their code, name or meaning; those with all of them
// in the name first.
func byWords(q string) []Entry {
	words := strings.Fields(q)
	var inName, inText []Entry
	for _, e := range append(All(), foreign...) {
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
