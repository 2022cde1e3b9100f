package transfer

import (
	"encoding/hex"
	"errors"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"xwarp/engine/testkit/havoc"
)

// goldens are messages and their bytes, written by hand from the layout at Message.
var goldens = []struct {
	name string
	m    Message
	hex  string
}{
	{"region", Message{Type: TypeRegion, Length: 5, STag: 0xBEEF},
		"78777472 05 03 000c 0000000000000005 0000beef"},
	{"done", Message{Type: TypeDone}, "78777472 05 04 0000"},
	{"beat", Message{Type: TypeBeat}, "78777472 05 05 0000"},
	{"stat", Message{Type: TypeStat, Path: "a/b"}, "78777472 05 07 0003 612f62"},
	{"list", Message{Type: TypeList, Path: "."}, "78777472 05 08 0001 2e"},
	{"mkdir", Message{Type: TypeMkdir, Attr: Attr{Kind: KindDir, Mode: 0o755}, Path: "d"},
		"78777472 05 09 0029 02 00 01ed 0000000000000000 0000000000000000 00000000 " +
			"0000000000000000 0000000000000000 64"},
	{"fetch", Message{Type: TypeFetch, Path: "f"}, "78777472 05 0a 0001 66"},
	{"store", Message{Type: TypeStore, Session: 6, Path: "f",
		Attr: Attr{Kind: KindFile, Mode: 0o640, Length: 258, Modified: Time{7, 8}}},
		"78777472 05 0b 0029 01 00 01a0 0000000000000102 0000000000000007 00000008 " +
			"0000000000000000 0000000000000006 66"},
	{"attr", Message{Type: TypeAttr, Attr: Attr{Kind: KindFile, Mode: 1, Length: 2,
		Modified: Time{-1, 999_999_999}, Node: 9}},
		"78777472 05 0c 0020 01 00 0001 0000000000000002 ffffffffffffffff 3b9ac9ff " +
			"0000000000000009"},
	{"opened", Message{Type: TypeOpened, Attr: Attr{Kind: KindFile, Length: 2}, Flag: true},
		"78777472 05 0d 0021 01 00 0000 0000000000000002 0000000000000000 00000000 " +
			"0000000000000000 01"},
	{"sum", Message{Type: TypeSum, Length: 8, Offset: 9, Sum: Sum{0: 3}},
		"78777472 05 0e 0030 0000000000000008 0000000000000009 03" + strings.Repeat("00", 31)},
	{"close", Message{Type: TypeClose, Flag: true}, "78777472 05 0f 0001 01"},
	{"buffer", Message{Type: TypeBuffer}, "78777472 05 10 0000"},
	{"store bytes", Message{Type: TypeStoreBytes, Length: 8, Offset: 9, Place: 10, Check: 3},
		"78777472 05 17 0020 0000000000000008 0000000000000009 000000000000000a 0000000000000003"},
	{"fetch bytes", Message{Type: TypeFetchBytes, Length: 8, Offset: 9, Place: 10},
		"78777472 05 18 0018 0000000000000008 0000000000000009 000000000000000a"},
	{"bytes", Message{Type: TypeBytes, Length: 8, Offset: 9, Check: 3},
		"78777472 05 19 0018 0000000000000008 0000000000000009 0000000000000003"},
	{"store pack", Message{Type: TypeStorePack, Length: 8, Check: 3},
		"78777472 05 11 0010 0000000000000008 0000000000000003"},
	{"fetch pack", Message{Type: TypeFetchPack, Length: 8}, "78777472 05 12 0008 0000000000000008"},
	{"packed", Message{Type: TypePacked, Length: 8, Check: 3, Taken: Taken{0: 5, 63: 128}},
		"78777472 05 13 0050 0000000000000008 0000000000000003 05" +
			strings.Repeat("00", 62) + "80"},
	{"extents", Message{Type: TypeExtents}, "78777472 05 14 0000"},
	{"set attr", Message{Type: TypeSetAttr, Path: "d",
		Attr: Attr{Kind: KindDir, Flags: FlagLinked, Mode: 0o1755, Modified: Time{Seconds: 2}}},
		"78777472 05 15 0021 02 02 03ed 0000000000000000 0000000000000002 00000000 " +
			"0000000000000000 64"},
	{"sync", Message{Type: TypeSync}, "78777472 05 16 0000"},
	{"error", Message{Type: TypeError, Code: CodeSum, Text: "né"},
		"78777472 05 06 0005 0005 6ec3a9"},
}

func parseHex(t testing.TB, s string) []byte {
	t.Helper()
	b, err := hex.DecodeString(strings.ReplaceAll(s, " ", ""))
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func TestGolden(t *testing.T) {
	for _, g := range goldens {
		t.Run(g.name, func(t *testing.T) {
			want := parseHex(t, g.hex)
			if d := cmp.Diff(want, AppendMessage(nil, &g.m)); d != "" {
				t.Errorf("bytes (-want +got):\n%s", d)
			}
			m, err := ParseMessage(want)
			if d := cmp.Diff(g.m, m); d != "" || err != nil {
				t.Errorf("message (-want +got): %v\n%s", err, d)
			}
			for n := range want {
				if _, err := ParseMessage(want[:n]); !errors.Is(err, ErrShort) {
					t.Errorf("cut to %d bytes: %v, want ErrShort", n, err)
				}
			}
			if _, err := ParseMessage(append(want, 0)); !errors.Is(err, ErrBody) {
				t.Errorf("one byte too many: %v, want ErrBody", err)
			}
		})
	}
}

func TestParseRefuses(t *testing.T) {
	for _, tc := range []struct {
		name, hex string
		want      error
	}{
		{"another protocol", "48545450 2f312e31 20323030", ErrMagic},
		{"later version", "78777472 06 01 0008 0000000000000000", ErrVersion},
		{"later version with a type that is new", "78777472 06 63 0000", ErrVersion},
		{"type 0", "78777472 05 00 0000", ErrBody},
		{"Put of version 4", "78777472 05 01 0008 0000000000000000", ErrBody},
		{"type 26", "78777472 05 1a 0000", ErrBody},
		{"no path", "78777472 05 07 0000", ErrBody},
		{"a path with a zero", "78777472 05 07 0003 610062", ErrBody},
		{"a path that is too long", "78777472 05 07 076d " + strings.Repeat("61", MaxPath+1),
			ErrBody},
		{"a flag of 2", "78777472 05 0f 0001 02", ErrBody},
		{"a Store without all of its attributes", "78777472 05 0b 0001 01", ErrBody},
		{"body of another type's length", "78777472 05 0e 0000", ErrBody},
		{"error without code", "78777472 05 06 0001 00", ErrBody},
	} {
		t.Run(tc.name, func(t *testing.T) {
			if _, err := ParseMessage(parseHex(t, tc.hex)); !errors.Is(err, tc.want) {
				t.Errorf("%v, want %v", err, tc.want)
			}
		})
	}
}

// An Error of another version must be understood, because it reports the mismatch of versions.
func TestErrorOfAnyVersion(t *testing.T) {
	m, err := ParseMessage(parseHex(t, "78777472 09 06 0004 0001 6e6f"))
	if err != nil || m.Code != CodeVersion || m.Text != "no" {
		t.Errorf("%+v, %v", m, err)
	}
}

// A peer's text is printed on a terminal, so ParseMessage escapes control characters.
func TestTextIsPrintable(t *testing.T) {
	m := Message{Type: TypeError, Code: CodeInternal, Text: "a\x1b[2Jb\nc\u009bd\xff"}
	got, err := ParseMessage(AppendMessage(nil, &m))
	if err != nil || got.Text != `a\x1b[2Jb\nc\u009bd\xff` {
		t.Errorf("%q, %v", got.Text, err)
	}
}

func TestLongTextIsCutBetweenCharacters(t *testing.T) {
	m := Message{Type: TypeError, Text: strings.Repeat("é", MaxText)}
	b := AppendMessage(nil, &m)
	if len(b) > MaxMessage {
		t.Fatalf("%d bytes, limit %d", len(b), MaxMessage)
	}
	got, err := ParseMessage(b)
	if err != nil || strings.Trim(got.Text, "é") != "" || len(got.Text) < MaxText-1 {
		t.Errorf("%d bytes, %v", len(got.Text), err)
	}
}

func FuzzParseMessage(f *testing.F) {
	for _, g := range goldens {
		f.Add(AppendMessage(nil, &g.m))
	}
	havoc.Fuzz(f, func(t *testing.T, b []byte) {
		m, err := ParseMessage(b)
		if err != nil || m.Type == TypeError {
			return // an Error's text is made printable, and its version may differ
		}
		if d := cmp.Diff(b, AppendMessage(nil, &m)); d != "" {
			t.Errorf("not the same again (-in +out):\n%s", d)
		}
	})
}
