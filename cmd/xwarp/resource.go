package main

import (
	"io"
	"reflect"

	"xwarp/engine/daemon/control"
	"xwarp/engine/daemon/view"
)

// resourceInfo is the output of resource show. Only the list of the kind is there, even when it is empty.
type resourceInfo struct {
	document
	Kind      string        `json:"kind" doc:"qp, cm_id, cq, srq, mr, mw, pd, listener, session, user, peer or sa; empty: the numbers of all"`
	Objects   *view.Objects `json:"objects,omitempty" doc:"how many there are"`
	QPs       []qpRow       `json:"qp,omitzero" doc:"queue pairs"`
	CMIDs     []cmRow       `json:"cm_id,omitzero" doc:"what listens and what is connected"`
	CQs       []cqRow       `json:"cq,omitzero" doc:"completion queues"`
	SRQs      []srqRow      `json:"srq,omitzero" doc:"shared receive queues"`
	MRs       []mrRow       `json:"mr,omitzero" doc:"memory regions"`
	MWs       []mwRow       `json:"mw,omitzero" doc:"memory windows"`
	PDs       []pdRow       `json:"pd,omitzero" doc:"protection domains"`
	Listeners []listenerRow `json:"listener,omitzero" doc:"listeners"`
	Sessions  []sessionRow  `json:"session,omitzero" doc:"programs"`
	Users     []userRow     `json:"user,omitzero" doc:"what users have of what [limits] allows"`
	SAs       []saRow       `json:"sa,omitzero" doc:"security associations of IPsec, without their keys; for the operator"`
	Peers     []peerRow     `json:"peer,omitzero" doc:"remote addresses and their networks, those with the most connections; for root"`
}

// onLink begins the rows of objects of a port, onDevice those of objects of a device. The names are those of iproute2's
// rdma.
type onLink struct {
	onDevice
	Port int `json:"port" doc:"of the device: 1"`
}

type onDevice struct {
	Index int    `json:"ifindex" doc:"number of the device"`
	Name  string `json:"ifname" doc:"the device"`
}

// ownerRow ends a row: whose it is.
type ownerRow struct {
	Export  string `json:"export,omitempty" doc:"whose it is, instead of a session"`
	Session uint64 `json:"session,omitempty" doc:"whose it is"`
	UID     uint32 `json:"uid" doc:"user"`
	Tenant  string `json:"tenant,omitempty" doc:"through whose socket the program came"`
	Pid     int32  `json:"pid,omitempty" doc:"process"`
	Comm    string `json:"comm,omitempty" doc:"name of the process"`
}

type qpRow struct {
	onLink
	QP        control.Handle `json:"lqpn" doc:"its number in its session"`
	Type      string         `json:"type" doc:"RC: iWARP has no other"`
	State     string         `json:"state" doc:"of the queue pair"`
	Local     string         `json:"local,omitempty" doc:"address"`
	Remote    string         `json:"remote,omitempty" doc:"address"`
	Transport string         `json:"transport,omitempty" doc:"of the connection: xdp, or kernel, as within the host"`
	TCPState  string         `json:"tcp_state,omitempty" doc:"of the connection"`
	PD        control.Handle `json:"pdn,omitempty" doc:"protection domain"`
	SendCQ    control.Handle `json:"send_cqn,omitempty" doc:"completion queue of the send queue"`
	RecvCQ    control.Handle `json:"recv_cqn,omitempty" doc:"completion queue of the receive queue"`
	In        uint64         `json:"payload_in" doc:"bytes placed"`
	Out       uint64         `json:"payload_out" doc:"bytes sent"`
	Held      uint64         `json:"held_bytes" doc:"bytes that wait for what is missing in front of them"`
	Number    uint32         `json:"qp_num,omitempty" doc:"its number for peers of --style roce; unique in the daemon"`
	ownerRow
	Error string `json:"error,omitempty" doc:"why it ended"`
}

type cmRow struct {
	onLink
	Type    string         `json:"qp-type" doc:"RC"`
	QP      control.Handle `json:"lqpn,omitempty" doc:"queue pair; none when it listens"`
	State   string         `json:"state" doc:"LISTEN, CONNECT, or the queue pair's when it is neither"`
	Space   string         `json:"ps" doc:"port space: TCP"`
	SrcAddr string         `json:"src-addr" doc:"local address"`
	SrcPort uint16         `json:"src-port" doc:"local port"`
	DstAddr string         `json:"dst-addr,omitempty" doc:"remote address"`
	DstPort uint16         `json:"dst-port,omitempty" doc:"remote port"`
	ownerRow
}

type cqRow struct {
	onDevice
	CQ          control.Handle `json:"cqn" doc:"its number in its session"`
	Depth       int            `json:"cqe" doc:"completions that it can hold"`
	Users       int            `json:"users" doc:"work queues that complete there"`
	Completions uint64         `json:"completions" doc:"so far"`
	Overrun     bool           `json:"overrun" doc:"completions were lost"`
	ownerRow
}

type srqRow struct {
	onDevice
	SRQ    control.Handle `json:"srqn" doc:"its number in its session"`
	Depth  int            `json:"max_wr" doc:"receives that may wait in it"`
	Posted int            `json:"posted" doc:"receives that wait"`
	Limit  int            `json:"srq_limit" doc:"its program gets an event when fewer are left; 0: none"`
	Users  int            `json:"users" doc:"queue pairs that take from it"`
	PD     control.Handle `json:"pdn" doc:"protection domain"`
	ownerRow
}

type mrRow struct {
	onDevice
	MR     control.Handle `json:"mrn" doc:"its number in its session"`
	RKey   string         `json:"rkey" doc:"steering tag, hexadecimal"`
	Length uint64         `json:"mrlen" doc:"bytes"`
	PD     control.Handle `json:"pdn" doc:"protection domain"`
	Access string         `json:"access" doc:"rights of peers"`
	ownerRow
}

type mwRow struct {
	onDevice
	MW   control.Handle `json:"mwn" doc:"its number in its session"`
	RKey string         `json:"rkey" doc:"steering tag, hexadecimal; a binding changes the last byte"`
	PD   control.Handle `json:"pdn" doc:"protection domain"`
	ownerRow
}

type saRow struct {
	onDevice
	SPI       string `json:"spi" doc:"security parameters index, hexadecimal"`
	Direction string `json:"direction" doc:"in or out"`
	Local     string `json:"local" doc:"address"`
	Remote    string `json:"remote" doc:"address"`
	Mode      string `json:"mode" doc:"transport or tunnel"`
	Algorithm string `json:"algorithm" doc:"as strongSwan calls it"`
	ESN       bool   `json:"esn" doc:"sequence numbers have 64 bits"`
	Sending   bool   `json:"sending" doc:"new packets leave by it"`
	Packets   uint64 `json:"packets" doc:"that it carried"`
	Bytes     uint64 `json:"bytes" doc:"of their payloads"`
	Replayed  uint64 `json:"replayed" doc:"packets that were received before, or too late"`
	Forged    uint64 `json:"forged" doc:"packets with a wrong integrity check value"`
}

type pdRow struct {
	onDevice
	PD    control.Handle `json:"pdn" doc:"its number in its session"`
	Users int            `json:"users" doc:"what is in it: the sum of the next four"`
	MRs   int            `json:"mrs" doc:"memory regions in it"`
	MWs   int            `json:"mws" doc:"memory windows in it"`
	SRQs  int            `json:"srqs" doc:"shared receive queues in it"`
	QPs   int            `json:"qps" doc:"queue pairs in it"`
	ownerRow
}

type listenerRow struct {
	onLink
	Listener control.Handle `json:"listenern,omitempty" doc:"its number in its session"`
	Addr     string         `json:"address" doc:"where it listens"`
	ownerRow
}

type sessionRow struct {
	Session uint64 `json:"session" doc:"its number"`
	Program string `json:"program" doc:"as it calls itself"`
	onDevice
	UID    uint32 `json:"uid" doc:"user"`
	Tenant string `json:"tenant,omitempty" doc:"through whose socket it came"`
	Pid    int32  `json:"pid" doc:"process"`
	Comm   string `json:"comm,omitempty" doc:"name of the process"`
	Since  string `json:"since" doc:"when it came"`
}

type userRow struct {
	UID      uint32 `json:"uid" doc:"user; 0 of a tenant"`
	Tenant   string `json:"tenant,omitempty" doc:"whose it is, instead of a user's"`
	Resource string `json:"resource" doc:"key in [limits]"`
	Used     int64  `json:"used" doc:"now, over all programs of the user or tenant; bytes of memory and daemon_memory"`
	Limit    int64  `json:"limit" doc:"at most"`
	Refused  int64  `json:"refused" doc:"how often the limit was in the way"`
}

type peerRow struct {
	Prefix      string `json:"prefix" doc:"an IPv4 address or an IPv6 /64, or a network: an IPv4 /24 or an IPv6 /48"`
	HalfOpen    int    `json:"half_open" doc:"handshakes that are not done"`
	Startup     int    `json:"startup" doc:"connections whose MPA start-up is not done"`
	Connections int    `json:"connections" doc:"that are established"`
	Refused     uint64 `json:"refused" doc:"connections that were more than it may have"`
}

func writeResources(w io.Writer, r resourceInfo) error {
	if r.Objects != nil {
		return writeRow(w, *r.Objects)
	}
	return writeRows(w, r.rows(r.Kind).Interface())
}

// writeRows prints a list of rows.
func writeRows(w io.Writer, list any) error {
	rows := reflect.ValueOf(list)
	for i := range rows.Len() {
		if err := writeRow(w, rows.Index(i).Interface()); err != nil {
			return err
		}
	}
	return nil
}
