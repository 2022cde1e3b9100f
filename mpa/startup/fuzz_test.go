package startup

import (
	"bytes"
	"testing"

	"xwarp/engine/testkit/havoc"
)

// FuzzStartup feeds both sides with bytes, all at once and one by one. Nothing panics, both ways give the same result,
// and our own reader can read each Reply.
//
//req:rfc5044-7.1.2-3 rfc5044-7.1.2-9
func FuzzStartup(f *testing.F) {
	for _, cfg := range []Config{{}, {Revision: 1}, {Role: RDMAC},
		{RTRs: allRTR, IRD: 5, ORD: 6, PrivateData: []byte("hello")},
		{Revision: 1, RtrFrame: true}, {Revision: 1, SMBD: true, IRD: 7, ORD: 8},
		{PrivateData: make([]byte, 508), NoCRC: true, Markers: true}} {
		var i Initiator
		if err := i.Init(cfg); err != nil {
			f.Fatal(err)
		}
		req := i.Output()
		var r Responder
		r.Init(Config{Role: Permissive, RtrFrame: true, SMBD: true})
		r.Input(req)
		r.Accept(Answer{IRD: 3, ORD: 4, PrivateData: []byte("yes")})
		reply := r.Output()
		i.Input(reply)
		f.Add(req, uint8(0))
		f.Add(reply, uint8(1))
		f.Add(append(reply, i.Output()...), uint8(3))
		f.Add(append(req, i.Output()...), uint8(6))
	}
	havoc.Fuzz(f, func(t *testing.T, b []byte, kind uint8) {
		cfg := Config{Role: Role(kind % 3), RtrFrame: kind&4 != 0, SMBD: kind&8 != 0, IRD: 4,
			ORD: 4}
		if kind&16 != 0 {
			cfg.Revision, cfg.RTRs = RevIETF, RTRRead
		}
		type result struct {
			stage  Stage
			params Params
			used   int
		}
		run := func(chunk int) (ri, rr result, reply []byte) {
			var i Initiator
			var r Responder
			if i.Init(cfg) != nil || r.Init(cfg) != nil {
				t.Fatal("bad config")
			}
			for rest := b; len(rest) > 0; {
				n, err := i.Input(rest[:min(chunk, len(rest))])
				if ri.used += n; n == 0 || err != nil {
					break
				}
				rest = rest[n:]
			}
			for rest := b; len(rest) > 0; {
				n, err := r.Input(rest[:min(chunk, len(rest))])
				if rr.used += n; n == 0 || err != nil {
					break
				}
				if rest = rest[n:]; r.Stage() == StageDecide && len(rest) == 0 {
					if err := r.Accept(Answer{IRD: 1, ORD: 1}); err != nil {
						t.Fatal(err)
					}
				}
			}
			reply = r.Output()
			ri.stage, ri.params, rr.stage, rr.params = i.Stage(), *i.Params(), r.Stage(),
				*r.Params()
			return ri, rr, reply
		}
		ri, rr, reply := run(len(b) + 1)
		ri1, rr1, reply1 := run(1)
		if ri.stage != ri1.stage || rr.stage != rr1.stage || !bytes.Equal(reply, reply1) ||
			ri.params.Send != ri1.params.Send || rr.params.RTR != rr1.params.RTR {
			t.Errorf("byte by byte %+v %+v, at once %+v %+v", ri1, rr1, ri, rr)
		}
		if ri.stage == StageEstablished && ri.used != ri1.used {
			t.Errorf("used %d at once, %d byte by byte", ri.used, ri1.used)
		}
		if reply != nil {
			var fr frameReader
			if n, _, done, err := fr.read(reply, replyFrame); n != len(reply) || !done ||
				err != nil {
				t.Errorf("our Reply %x cannot be read: %v", reply, err)
			}
		}
	})
}
