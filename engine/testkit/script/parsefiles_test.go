package script_test

import (
	"errors"
	"strings"
	"testing"
	"testing/fstest"

	"xwarp/engine/testkit/havoc"
	"xwarp/engine/testkit/script"
)

func parse(text string) ([]script.Script, error) {
	return script.Load(fstest.MapFS{"a.pkt": {Data: []byte(text)}})
}

// TestParseErrors: Load reports mistakes in scripts. The first four cases check file and line.
func TestParseErrors(t *testing.T) {
	const head = "# RFC 1: x\nscript a\n"
	for _, c := range []struct{ text, want string }{
		{"script a\n", "a.pkt:1: a script needs a name"},
		{"# no number\nscript a\n", "a.pkt:2: a script needs a name"},
		{"listen\n", "a.pkt:1: outside of a script"},
		{head + "lisen\n", `a.pkt:3: a: "lisen": "lisen" is not a step`},
		{head + "write\n", "write: 0 words follow"},
		{head + "< X 0\n", "flags are letters"},
		{head + "< S\n", "needs flags and a sequence number"},
		{head + "< S 0 foo\n", `"foo" is not a field`},
		{head + "> . 1 ack 5..2\n", "is not a range"},
		{head + "> . 1 sack\n", "no blocks"},
		{head + "> . 1 ecn maybe\n", "ecn: want"},
		{head + "+x quiet 1\n", "not a number of seconds"},
		{head + "@x accept\n", "is not a connection"},
		{head + "use foo\n", `"foo" is not a setting`},
		{head + "for a,b : 1,2 3\n", `row "3" has 1 values, not 2`},
		{head + head, "exists already"},
		{"def m\nm\n" + head + "m\n", "nested too deeply"},
	} {
		_, err := parse(c.text)
		if err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%q:\ngot  %v\nwant %s", c.text, err, c.want)
		}
	}
}

// TestTable checks the names and titles of the scripts of a table's rows.
func TestTable(t *testing.T) {
	all, err := parse("# RFC 1: with $a\nscript x-$a\nfor a,b : 1,2 3,4\nfor a,b : 5,6\n< S $b\n")
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, s := range all {
		names = append(names, s.Name+": "+s.Title)
	}
	if got, want := strings.Join(names, "; "),
		"x-1: RFC 1: with 1; x-3: RFC 1: with 3; x-5: RFC 1: with 5"; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
}

// TestRunnerSees: a false statement in a script is reported, with its cause.
func TestRunnerSees(t *testing.T) {
	const open = "# RFC 1: x\nscript a\nlisten\n< S 0 mss 1000 sackok\n> S. 0 ack 1\n< . 1 ack " +
		"1\naccept\n"
	for _, c := range []struct{ steps, want string }{
		{"> . 1 ack 1", "nothing came"},
		{"< P. 1:101 ack 1\n> . 1 ack 100", "other ack"},
		{"< P. 1:101 ack 1\n> F. 1 ack 101", "other flags"},
		{"< P. 1:101 ack 1\n> . 2 ack 101", "other sequence number, length"},
		{"< P. 1:101 ack 1\n> . 1 ack 101 win 5", "other win"},
		{"< P. 1:101 ack 1\n> . 1 ack 101 ts *", "other ts"},
		{"< P. 201:301 ack 1\n> . 1 ack 1", "other SACK"},
		{"< P. 201:301 ack 1\n> . 1 ack 1 sack 201:300", "other SACK"},
		{"< P. 1:101 ack 1\n> . 1 ack 101 ecn ce", "other ECN"},
		{"< P. 1:101 ack 1\nquiet 0.1", "expected nothing"},
		{"< P. 1:101 ack 1", "expected nothing"},
		{"write 500\n> P. 1:501 ack 1\n+0.01..0.02 > P. 1:501 ack 1", "nothing came within"},
		{"write 500\n> P. 1:501 ack 1\n+0.5..0.6 > P. 1:501 ack 1", "after"},
		{"read 1", "got 0 bytes"},
		{"< P. 1:101 ack 1\n> . 1 ack 101\nread again", "got 100 bytes"},
		{"read eof", "got again"},
		{"write 1 EPIPE", "got none"},
		{"state CLOSED", "got ESTABLISHED"},
		{"error ECONNRESET", "got none"},
		{"info cwnd 3", "got 10"},
		{"info foo 3", "no such field"},
		{"< . 1 ack foo", "has no value yet"},
		{"accept", "got EAGAIN"},
	} {
		all, err := parse(open + c.steps)
		if err != nil {
			t.Fatal(err)
		}
		err = script.RunOurs(&all[0])
		var f *script.Failure
		if !errors.As(err, &f) || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%q:\ngot  %v\nwant %s", c.steps, err, c.want)
		}
	}
}

// FuzzLoad: no text makes the parser panic, and accepted text runs without a panic. Texts with mtu=, of more than 1 KiB
// or of more than four scripts are skipped.
func FuzzLoad(f *testing.F) {
	f.Add("# RFC 1: x\nscript a\nuse ecn=classic mtu=1400\nlisten\n< S 0 mss 1000 sackok ts 1 " +
		"ecr 0\n> S. 0 ack 1\n< . 1 ack 1\n")
	f.Add("# RFC 1: x\nscript a-$b\nfor b : 1 2\n@$b +0.1..0.2 >? * edge-1:* sack 1:2 3:4 win " +
		"5..9\nicmp toobig quote nxt mtu 5\nfill 7\n")
	havoc.Fuzz(f, func(t *testing.T, text string) {
		if strings.Contains(text, "mtu=") || len(text) > 1<<10 {
			return
		}
		all, err := parse(text)
		if err != nil || len(all) > 4 {
			return
		}
		for i := range all {
			script.RunOurs(&all[i])
		}
	})
}
