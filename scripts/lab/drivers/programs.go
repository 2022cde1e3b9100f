package main

import (
	"errors"
	"fmt"

	"xwarp/scripts/lab/output"
	"xwarp/scripts/lab/trial"
)

// pair runs a server on host B that ends when its client ends, and the client on host A. It starts the client when the
// server has printed ready, and returns the client's output.
func (r *rig) pair(server, ready, client string) (string, error) {
	p, err := r.background(hostB, server, ready)
	if err != nil {
		return "", err
	}
	out, err := r.Script(in(hostA, xwarp+" "+client))
	return out, errors.Join(wrapNotOffered(err), r.WaitSuccess(p))
}

// sendLatency runs a ping-pong by Sends of 4096 bytes.
func sendLatency(r *rig, mode string) (string, error) {
	const count = 50
	flags := fmt.Sprintf("bench send_lat -s 4096 -n %d --sleep", count)
	_, err := r.pair(flags+r.device(hostB, mode), "Waiting",
		flags+r.device(hostA, mode)+" --json "+addrB)
	return fmt.Sprintf("%d of 4096 bytes", count), r.requireMode(mode, 1500, err)
}

// writeBW measures Writes over 8 connections for 3 s.
func writeBW(r *rig, mode string) (string, error) {
	rate, err := r.writeBandwidth(mode, "-q 8 -D 3")
	return fmt.Sprintf("%.0f MiB/s", rate), err
}

// writeBandwidth returns the bandwidth of Writes in MiB/s. how has the flags for connections and for duration or
// number.
func (r *rig) writeBandwidth(mode, how string) (float64, error) {
	flags := "bench write_bw -t 16 -f 1 --sleep " + how
	out, err := r.pair(flags+r.device(hostB, mode), "Waiting",
		flags+r.device(hostA, mode)+" --json "+r.addr)
	if err = r.requireMode(mode, 1500, err); err != nil {
		return 0, err
	}
	var v struct {
		Results []struct {
			Average float64 `json:"BW_average"`
		} `json:"results"`
	}
	if err := output.JSON(out, &v); err != nil || len(v.Results) != 1 {
		return 0, fmt.Errorf("write_bw printed %q: %w", output.LastLine(out), err)
	}
	if v.Results[0].Average <= 0 {
		return 0, errors.New("nothing was moved")
	}
	return v.Results[0].Average, nil
}

// soak repeats copies to a server and back over a bad cable, for the time r.soak. Each copy has another length.
func soak(r *rig, mode string) (string, error) {
	s, err := r.startServer(mode)
	if err != nil {
		return "", r.requireMode(mode, 1500, err)
	}
	if err := r.mistreat(badCable); err != nil {
		return "", err
	}
	defer r.heal()
	out, err := r.VM.Script(r.Log, in(hostA, fmt.Sprintf(`sh -e -c '
end=$(( $(date +%%s) + %d )); n=0
while [ $(date +%%s) -lt $end ]; do
	n=$(( n + 1 ))
	head -c $(( n * 77777 %% 2000000 + 1 )) %s >/tmp/part
	%[3]s cp /tmp/part %[4]s %[5]s
	%[3]s cp %[4]s - %[5]s >/tmp/back
	cmp /tmp/part /tmp/back
done
echo; echo $n'`, int(r.soak.Seconds()), payload, xwarp, r.remote("part"), r.device(hostA, mode))),
		r.soak+trial.Patience)
	if err = errors.Join(err, r.Interrupt(s.Process)); err != nil {
		return "", err
	}
	return output.LastLine(out) + " copies there and back", nil
}
