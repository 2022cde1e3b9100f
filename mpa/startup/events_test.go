package startup

import (
	"bytes"
	"flag"
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"xwarp/mpa/ulpdu"
)

var update = flag.Bool("update", false, "rewrite the golden files")

// TestStartupEvents tries every event at every stage of both sides; testdata/startup.txt has the results.
//
//req:rfc5044-7.1.2-1 rfc5044-7.1.2-2 rfc5044-7.1.2-4 rfc5044-7.1.2-5 rfc5044-7.1.2-6
func TestStartupEvents(t *testing.T) {
	request := func(cfg Config) []byte {
		var i Initiator
		if err := i.Init(cfg); err != nil {
			t.Fatal(err)
		}
		return i.Output()
	}
	reply := func(flags, rev byte) []byte {
		return (&frame{kind: replyFrame, crc: true, rev: Revision(rev), rejected: flags&flagR != 0,
			sFlag: flags&flagS != 0}).appendTo(nil)
	}
	frames := []struct {
		name string
		b    []byte
	}{
		{"Request 0", request(Config{Role: RDMAC})},
		{"Request 1", request(Config{Revision: 1})},
		{"Request 1 S", request(Config{Revision: 1, RtrFrame: true})},
		{"Request 2", request(Config{})},
		{"Reply 0", reply(0, 0)},
		{"Reply 1", reply(0, 1)},
		{"Reply 1 R", reply(flagR, 1)},
		{"Reply 1 S", reply(flagS, 1)},
		{"Rtr frame", (&frame{kind: rtrFrame, rev: 1}).appendTo(nil)},
		{"FPDU", unhex(t, "000ec14000000001 0000000000000000 ebd34c5f")},
		{"nothing", nil},
	}
	var out bytes.Buffer
	line := func(side string, stage Stage, event string, after Stage, used int, output []byte,
		err *ulpdu.Error) {
		fmt.Fprintf(&out, "%s, %v | %s -> %v", side, stage, event, after)
		if used > 0 {
			fmt.Fprintf(&out, ", %d bytes used", used)
		}
		if output != nil {
			fmt.Fprintf(&out, ", sends %s flags %02x revision %d",
				strings.Fields(string(output[:16]))[2], output[16], output[17])
		}
		if err != nil {
			fmt.Fprintf(&out, ", error %d", err.Code)
		}
		fmt.Fprintln(&out)
	}

	prepare := func(cfg Config, b []byte) *Initiator {
		var i Initiator
		i.Init(cfg)
		i.Output()
		i.Input(b)
		i.Output()
		return &i
	}
	old := Config{Revision: 1, RtrFrame: true}
	initiators := []func() *Initiator{
		func() *Initiator { return prepare(old, nil) },
		func() *Initiator { return prepare(old, reply(0, 1)) },
		func() *Initiator { return prepare(old, reply(flagR, 1)) },
		func() *Initiator { return prepare(old, []byte("HTTP")) },
	}
	for _, start := range initiators {
		for _, f := range frames {
			i := start()
			stage := i.Stage()
			n, err := i.Input(f.b)
			line("initiator", stage, f.name, i.Stage(), n, i.Output(), err)
		}
		i := start()
		stage := i.Stage()
		err := i.Closed("closed")
		line("initiator", stage, "closed", i.Stage(), 0, i.Output(), err)
	}

	ready := func(b []byte, then func(*Responder)) func() *Responder {
		return func() *Responder {
			var r Responder
			r.Init(Config{RtrFrame: true})
			r.Input(b)
			if then != nil {
				then(&r)
			}
			r.Output()
			return &r
		}
	}
	responders := []func() *Responder{
		ready(nil, nil),
		ready(frames[1].b, nil),
		ready(frames[2].b, func(r *Responder) { r.Accept(Answer{}) }),
		ready(frames[1].b, func(r *Responder) { r.Accept(Answer{}) }),
		ready(frames[1].b, func(r *Responder) { r.Reject(Answer{}) }),
		ready([]byte("HTTP"), nil),
	}
	for _, start := range responders {
		for _, f := range frames {
			r := start()
			stage := r.Stage()
			n, err := r.Input(f.b)
			line("responder", stage, f.name, r.Stage(), n, r.Output(), err)
		}
		for k, do := range []func(*Responder) error{
			func(r *Responder) error { return r.Accept(Answer{}) },
			func(r *Responder) error { return r.Reject(Answer{}) },
		} {
			r := start()
			stage := r.Stage()
			event := [...]string{"accept", "reject"}[k]
			if do(r) != nil {
				event += " (refused)"
			}
			line("responder", stage, event, r.Stage(), 0, r.Output(), nil)
		}
		r := start()
		stage := r.Stage()
		err := r.Closed("closed")
		line("responder", stage, "closed", r.Stage(), 0, r.Output(), err)
	}

	const file = "testdata/startup.txt"
	if *update {
		if err := os.WriteFile(file, out.Bytes(), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(strings.Split(string(want), "\n"), strings.Split(out.String(),
		"\n")); diff != "" {
		t.Errorf("the state machine has changed (-golden +now); -update if that is meant\n%s", diff)
	}
}

// TestRejectVersion0 checks that a peer of revision 0, which has no rejection, gets no Reply.
func TestRejectVersion0(t *testing.T) {
	var i Initiator
	var r Responder
	i.Init(Config{Role: RDMAC})
	r.Init(Config{Role: Permissive})
	r.Input(i.Output())
	if err := r.Reject(Answer{}); err != nil || r.Output() != nil || r.Stage() != StageRejected {
		t.Errorf("%v, %v", err, r.Stage())
	}
}
