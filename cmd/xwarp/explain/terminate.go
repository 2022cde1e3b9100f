package explain

import (
	"fmt"
	"regexp"
	"slices"
	"strconv"

	"xwarp/ddp"
	"xwarp/ddp/rdmap"
	"xwarp/mpa/ulpdu"
)

// causePattern matches layer/type/code, alone or in a log line.
var causePattern = regexp.MustCompile(`\b([0-9]|1[0-5])/([0-9]|1[0-5])/(?:0x)?([0-9a-f]{1,2})\b`)

// causeOf parses layer/type/code.
func causeOf(s string) (ddp.Cause, bool) {
	m := causePattern.FindStringSubmatch(s)
	if m == nil {
		return 0, false
	}
	layer, _ := strconv.Atoi(m[1])
	typ, _ := strconv.Atoi(m[2])
	code, _ := strconv.ParseUint(m[3], 16, 8)
	return ddp.MakeCause(ulpdu.Layer(layer), uint8(typ), uint8(code)), true
}

func codeOf(c ddp.Cause) string { return fmt.Sprintf("%d/%d/%02x", c.Layer(), c.Type(), c.Code()) }

func wireBytes(c ddp.Cause) string {
	return fmt.Sprintf("%02x %02x", byte(c.Layer())<<4|c.Type(), c.Code())
}

// section returns the section of the specification that defines the code.
func section(c ddp.Cause) string {
	switch {
	case c.Layer() == ulpdu.DDP:
		return "RFC 5041, 7.2"
	case c.Layer() == ulpdu.MPA && c.Code() > ulpdu.CodeStartup:
		return "RFC 6581, 8"
	case c.Layer() == ulpdu.MPA:
		return "RFC 5044, 8"
	}
	return "RFC 5040, 4.8 and 7"
}

func mpaCause(code uint8) ddp.Cause { return ddp.MakeCause(ulpdu.MPA, 0, code) }

// listed returns the entry of a code that the specifications define.
func listed(c ddp.Cause) (e Entry, ok bool) {
	i := slices.IndexFunc(terminates(), func(e Entry) bool { return e.Code == codeOf(c) })
	if i < 0 {
		return e, false
	}
	return terminates()[i], true
}

// ForCause explains the code of a Terminate, known or not.
func ForCause(c ddp.Cause) Entry {
	if e, ok := listed(c); ok {
		return e
	}
	if c.Layer() == ulpdu.MPA {
		if e, ok := listed(mpaCause(c.Code())); ok {
			e.Note = "MPA errors have type 0; some Chelsio adapters send type 3 with the same meaning"
			return e
		}
	}
	e := unknown(c.Layer())
	if name, ok := rdmap.Describe(c); ok { // local catastrophic error with any code
		e, _ = listed(rdmap.CauseCatastrophic)
		e.Name = name
	}
	e.Code, e.Bytes, e.Spec = codeOf(c), wireBytes(c), section(c)
	return e
}

// unknown describes a code that no specification defines.
func unknown(layer ulpdu.Layer) Entry {
	e := Entry{
		Kind: Terminate, Name: "undefined code",
		Meaning: fmt.Sprintf("The sender of the Terminate detected an error in layer %v and closes "+
			"the connection. The RFCs do not define the type and code.", layer),
		Causes: []string{"a peer that uses its own codes",
			"a Terminate with its fields in another order (Linux siw swaps the nibbles of the " +
				"first byte)"},
		Remedy: []string{"look up the code in the peer's documentation or source"},
	}
	if layer > ulpdu.MPA {
		e.Meaning = "The layer is not 0 (RDMAP), 1 (DDP) or 2 (MPA). The connection is closed."
	}
	return e
}
