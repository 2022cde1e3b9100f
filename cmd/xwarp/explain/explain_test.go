package explain

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/BurntSushi/toml"

	"xwarp/ddp/rdmap"
	"xwarp/engine/testkit/havoc"
	"xwarp/mpa/ulpdu"
	"xwarp/tcp"
)

func complete(t *testing.T, e *Entry) {
	t.Helper()
	if e.Kind == "" || e.Code == "" || e.Name == "" || len(e.Meaning) < 20 || len(e.Causes) == 0 ||
		len(e.Remedy) == 0 {
		t.Errorf("%s %q is not explained: %+v", e.Kind, e.Code, e)
	}
	for _, s := range append(append([]string{e.Meaning}, e.Causes...), e.Remedy...) {
		if s != strings.TrimSpace(s) || s == "" || strings.Contains(s, "  ") {
			t.Errorf("%s: %q", e.Code, s)
		}
	}
}

// TestEverything checks that each Terminate of rdmap.Rows, each status and each end of a TCP connection has a text, and
// that no text is unused.
func TestEverything(t *testing.T) {
	all := All()
	seen := map[string]bool{}
	for i := range all {
		complete(t, &all[i])
		if seen[all[i].Code] {
			t.Errorf("%s is explained twice", all[i].Code)
		}
		seen[all[i].Code] = true
	}
	rows := rdmap.Rows()
	if len(rows) != len(terminates()) {
		t.Errorf("%d texts for %d rows of the error tables", len(terminates()), len(rows))
	}
	for _, r := range rows {
		if e := ForCause(r.Cause); e.Code != codeOf(r.Cause) || e.Name != r.Name {
			t.Errorf("%v: %+v", r.Cause, e)
		}
	}
	n := 0
	for s := rdmap.Success; s.String() != fmt.Sprintf("status %d", uint8(s)); s++ {
		if e := Find(s.String()); len(e) != 1 || e[0].Kind != Status || e[0].Code != s.String() {
			t.Errorf("%v: %+v", s, e)
		}
		n++
	}
	if len(statuses()) != n {
		t.Errorf("%d texts for %d statuses", len(statuses()), n)
	}
	n = 0
	for c := tcp.CauseClosed; c.String() != "?"; c++ {
		if e := Find(c.Error()); len(e) != 1 || e[0].Kind != TCP || e[0].Name != c.String() {
			t.Errorf("%v: %+v", c, e)
		}
		n++
	}
	if len(tcpEnds()) != n {
		t.Errorf("%d texts for %d ends of a connection", len(tcpEnds()), n)
	}
	numbers := map[int]bool{}
	for _, e := range slices.Concat(statuses(), unusedStatuses()) {
		complete(t, &e)
		if numbers[e.Number] {
			t.Errorf("%s: the number %d is another status's", e.Code, e.Number)
		}
		numbers[e.Number] = true
	}
}

// TestFiles checks that each key in the files is known, and that each entry of the files is used.
func TestFiles(t *testing.T) {
	files, err := texts.ReadDir("texts")
	if err != nil {
		t.Fatal(err)
	}
	total := 0
	for _, f := range files {
		var file struct {
			Spec  string
			Words map[string]string
			Entry []Entry
		}
		md, err := toml.DecodeFS(texts, "texts/"+f.Name(), &file)
		if err != nil || len(md.Undecoded()) > 0 {
			t.Errorf("%s: %v, unknown keys %v", f.Name(), err, md.Undecoded())
		}
		total += len(file.Entry)
	}
	if known := len(All()) + len(unusedStatuses()) + len(outcomes()); known != total {
		t.Errorf("%d entries in the files, %d in the tables", total, known)
	}
}

func TestFind(t *testing.T) {
	for _, tc := range []struct {
		query string
		want  string // codes
		note  string
	}{
		{"2/0/2", "2/0/02", ""},
		{"2/0/02", "2/0/02", ""},
		{" 0/1/ff ", "0/1/ff", ""},
		{"0/2/0x9", "0/2/09", ""},
		{"terminate 1/2/05", "1/2/05", ""},
		{"DDP error (terminate 1/2/02): no receive", "1/2/02", ""},
		{"20 02", "2/0/02", ""},
		{"0x2002", "2/0/02", ""},
		{"time=2026-01-01T00:00:00Z level=INFO msg=RDMA_CM_EVENT_DISCONNECTED device=eth0",
			"RDMA_CM_EVENT_DISCONNECTED", ""},
		{"level=WARN msg=\"link is down: connections wait until they time out\" error=" +
			strings.Repeat("x", 4096), "link is down: connections wait until they time out", ""},
		{"20020000", "2/0/02", ""},
		{"0x20 0x06", "2/0/06", ""},
		{"02 02 00", "2/0/02", "siw"},    // a bad CRC as Linux siw sends it
		{"11 00 03 00", "1/1/00", "siw"}, // both nibbles are equal; the flags are at the wrong end
		{"10 00 07", "0/1/00", "siw"},
		{"23 07", "2/0/07", "Chelsio"},
		{"2/3/6", "2/0/06", "Chelsio"},
		{"0/0/7a", "0/0/7a", ""},
		{"1/2/44", "1/2/44", ""},
		{"7/1/1", "7/1/01", ""},
		{"WR_FLUSH_ERR", "WR_FLUSH_ERR", ""},
		{"ibv_wc_wr_flush_err", "WR_FLUSH_ERR", ""},
		{"IBV_WC_RNR_RETRY_EXC_ERR", "RNR_RETRY_EXC_ERR", ""},
		{"RDMA_CM_EVENT_REJECTED", "RDMA_CM_EVENT_REJECTED", ""},
		{"unreachable", "RDMA_CM_EVENT_UNREACHABLE", ""},
		{"ENOMEM", "ENOMEM", ""},
		{"ECONNRESET", "ECONNRESET", ""},
		{"5", "WR_FLUSH_ERR 2/0/05", ""},
		{"12", "RETRY_EXC_ERR", ""},
		{"0", "SUCCESS", ""},
		{"crc mismatch", "2/0/02", ""},
		{"insufficient IRD", "2/0/06", ""},
		{"", "", ""},
		{"nonsense", "", ""},
		{"zz/1/2", "", ""},
		{"99", "", ""},
		{"2", "LOC_QP_OP_ERR 2/0/02", ""},
		{strings.Repeat("1/", maxQuery), "", ""},
	} {
		var codes []string
		notes := ""
		for _, e := range Find(tc.query) {
			complete(t, &e)
			codes = append(codes, e.Code)
			notes += e.Note
		}
		if got := strings.Join(codes, " "); got != tc.want {
			t.Errorf("Find(%q) = %q, want %q", tc.query, got, tc.want)
		}
		if (tc.note == "") != (notes == "") || !strings.Contains(notes, tc.note) {
			t.Errorf("Find(%q): note %q, want %q", tc.query, notes, tc.note)
		}
	}
	if e := Find("bounds"); len(e) < 2 {
		t.Errorf("\"bounds\" finds %d entries", len(e))
	}
}

// TestErrorText looks up the text of ulpdu.Error.
func TestErrorText(t *testing.T) {
	for _, r := range rdmap.Rows() {
		e := Find(ulpdu.Newf(r.Cause.Layer(), r.Cause.Type(), r.Cause.Code(),
			"detail of 4/4 bytes").Error())
		if len(e) != 1 || e[0].Code != codeOf(r.Cause) {
			t.Errorf("%v: %+v", r.Cause, e)
		}
	}
}

func FuzzFind(f *testing.F) {
	for _, s := range []string{"2/0/2", "20 02", "5", "crc", "0x", "//", "terminate "} {
		f.Add(s)
	}
	havoc.Fuzz(f, func(t *testing.T, q string) {
		for _, e := range Find(q) {
			complete(t, &e)
		}
	})
}
