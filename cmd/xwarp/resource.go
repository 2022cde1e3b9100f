package main

import (
	"io"
	"reflect"

	"xwarp/engine/daemon/control"
	"xwarp/engine/daemon/view"
)

// resourceInfo is the output of resource show. It has only the list of its kind, even if that list is empty.
type resourceInfo struct {
	document
	Kind      string        `json:"kind" doc:"qp, cm_id, cq, srq, mr, mw, pd, listener, session, user, peer or sa; empty: counts of all kinds"`
	Objects   *view.Objects `json:"objects,omitempty" doc:"number of objects of each kind"`
	QPs       []qpRow       `json:"qp,omitzero" doc:"queue pairs"`
	CMIDs     []cmRow       `json:"cm_id,omitzero" doc:"listeners and connections"`
	CQs       []cqRow       `json:"cq,omitzero" doc:"completion queues"`
	SRQs      []srqRow      `json:"srq,omitzero" doc:"shared receive queues"`
	MRs       []mrRow       `json:"mr,omitzero" doc:"memory regions"`
	MWs       []mwRow       `json:"mw,omitzero" doc:"memory windows"`
	PDs       []pdRow       `json:"pd,omitzero" doc:"protection domains"`
	Listeners []listenerRow `json:"listener,omitzero" doc:"listeners"`
	Sessions  []sessionRow  `json:"session,omitzero" doc:"programs"`
	Users     []userRow     `json:"user,omitzero" doc:"resources of users against [limits]"`
	SAs       []saRow       `json:"sa,omitzero" doc:"IPsec security associations, without keys; operator only"`
	Peers     []peerRow     `json:"peer,omitzero" doc:"remote addresses and networks with the most connections; root only"`
}

// onLink starts the rows of objects of a port, onDevice those of objects of a device. The keys are those of iproute2's
// rdma.
type onLink struct {
	onDevice
	Port int `json:"port" doc:"port of the device, always 1"`
}

type onDevice struct {
	Index int    `json:"ifindex" doc:"device number"`
	Name  string `json:"ifname" doc:"device name"`
}

// ownerRow ends a row with the owner of the object.
type ownerRow struct {
	Export  string `json:"export,omitempty" doc:"owning export, instead of a session"`
	Session uint64 `json:"session,omitempty" doc:"owning session"`
	UID     uint32 `json:"uid" doc:"user ID"`
	Tenant  string `json:"tenant,omitempty" doc:"tenant whose socket the program uses"`
	Pid     int32  `json:"pid,omitempty" doc:"process ID"`
	Comm    string `json:"comm,omitempty" doc:"process name"`
}

type qpRow struct {
	onLink
	QP        control.Handle `json:"lqpn" doc:"queue pair number in its session"`
	Type      string         `json:"type" doc:"always RC"`
	State     string         `json:"state" doc:"queue pair state"`
	Local     string         `json:"local,omitempty" doc:"local address and port"`
	Remote    string         `json:"remote,omitempty" doc:"remote address and port"`
	Transport string         `json:"transport,omitempty" doc:"transport of the connection: xdp, or kernel (also used within the host)"`
	TCPState  string         `json:"tcp_state,omitempty" doc:"TCP state"`
	PD        control.Handle `json:"pdn,omitempty" doc:"protection domain"`
	SendCQ    control.Handle `json:"send_cqn,omitempty" doc:"completion queue of the send queue"`
	RecvCQ    control.Handle `json:"recv_cqn,omitempty" doc:"completion queue of the receive queue"`
	In        uint64         `json:"payload_in" doc:"payload bytes placed"`
	Out       uint64         `json:"payload_out" doc:"payload bytes sent"`
	Held      uint64         `json:"held_bytes" doc:"bytes received out of order and held until the gap before them is filled"`
	Number    uint32         `json:"qp_num,omitempty" doc:"number for peers of --style roce; unique in the daemon"`
	ownerRow
	Error string `json:"error,omitempty" doc:"error that ended it"`
	DSCP  int    `json:"dscp,omitempty" doc:"class of the packets sent, 1 to 63; absent: 0"`
}

type cmRow struct {
	onLink
	Type    string         `json:"qp-type" doc:"RC"`
	QP      control.Handle `json:"lqpn,omitempty" doc:"queue pair; absent for a listener"`
	State   string         `json:"state" doc:"LISTEN, CONNECT, or another state of the queue pair"`
	Space   string         `json:"ps" doc:"port space: TCP"`
	SrcAddr string         `json:"src-addr" doc:"local address"`
	SrcPort uint16         `json:"src-port" doc:"local port"`
	DstAddr string         `json:"dst-addr,omitempty" doc:"remote address"`
	DstPort uint16         `json:"dst-port,omitempty" doc:"remote port"`
	ownerRow
}

type cqRow struct {
	onDevice
	CQ          control.Handle `json:"cqn" doc:"completion queue number in its session"`
	Depth       int            `json:"cqe" doc:"capacity in completions"`
	Users       int            `json:"users" doc:"work queues that use it"`
	Completions uint64         `json:"completions" doc:"completions so far"`
	Overrun     bool           `json:"overrun" doc:"the queue overran and lost completions"`
	ownerRow
}

type srqRow struct {
	onDevice
	SRQ    control.Handle `json:"srqn" doc:"shared receive queue number in its session"`
	Depth  int            `json:"max_wr" doc:"capacity in receives"`
	Posted int            `json:"posted" doc:"receives posted and not consumed"`
	Limit  int            `json:"srq_limit" doc:"limit below which the program gets an event; 0: none"`
	Users  int            `json:"users" doc:"queue pairs that use it"`
	PD     control.Handle `json:"pdn" doc:"protection domain"`
	ownerRow
}

type mrRow struct {
	onDevice
	MR     control.Handle `json:"mrn" doc:"memory region number in its session"`
	RKey   string         `json:"rkey" doc:"STag, hexadecimal"`
	Length uint64         `json:"mrlen" doc:"length in bytes"`
	PD     control.Handle `json:"pdn" doc:"protection domain"`
	Access string         `json:"access" doc:"access rights of peers"`
	ownerRow
}

type mwRow struct {
	onDevice
	MW   control.Handle `json:"mwn" doc:"memory window number in its session"`
	RKey string         `json:"rkey" doc:"STag, hexadecimal; binding changes the last byte"`
	PD   control.Handle `json:"pdn" doc:"protection domain"`
	ownerRow
}

type saRow struct {
	onDevice
	SPI       string `json:"spi" doc:"security parameters index, hexadecimal"`
	Direction string `json:"direction" doc:"in or out"`
	Local     string `json:"local" doc:"local address"`
	Remote    string `json:"remote" doc:"remote address"`
	Mode      string `json:"mode" doc:"transport or tunnel"`
	Algorithm string `json:"algorithm" doc:"algorithm, by its strongSwan name"`
	ESN       bool   `json:"esn" doc:"extended sequence numbers (64 bits)"`
	Sending   bool   `json:"sending" doc:"used for new outgoing packets"`
	Packets   uint64 `json:"packets" doc:"packets carried"`
	Bytes     uint64 `json:"bytes" doc:"payload bytes carried"`
	Replayed  uint64 `json:"replayed" doc:"packets rejected by the replay window"`
	Forged    uint64 `json:"forged" doc:"packets with a wrong ICV"`
}

type pdRow struct {
	onDevice
	PD    control.Handle `json:"pdn" doc:"protection domain number in its session"`
	Users int            `json:"users" doc:"objects in it: the sum of the next four"`
	MRs   int            `json:"mrs" doc:"memory regions in it"`
	MWs   int            `json:"mws" doc:"memory windows in it"`
	SRQs  int            `json:"srqs" doc:"shared receive queues in it"`
	QPs   int            `json:"qps" doc:"queue pairs in it"`
	ownerRow
}

type listenerRow struct {
	onLink
	Listener control.Handle `json:"listenern,omitempty" doc:"listener number in its session"`
	Addr     string         `json:"address" doc:"address and port"`
	ownerRow
}

type sessionRow struct {
	Session uint64 `json:"session" doc:"session number"`
	Program string `json:"program" doc:"name that the program reports"`
	onDevice
	UID    uint32 `json:"uid" doc:"user ID"`
	Tenant string `json:"tenant,omitempty" doc:"tenant whose socket the program uses"`
	Pid    int32  `json:"pid" doc:"process ID"`
	Comm   string `json:"comm,omitempty" doc:"process name"`
	Since  string `json:"since" doc:"time of connection"`
}

type userRow struct {
	UID      uint32 `json:"uid" doc:"user ID; 0 for a tenant"`
	Tenant   string `json:"tenant,omitempty" doc:"tenant, instead of a user"`
	Resource string `json:"resource" doc:"key in [limits]"`
	Used     int64  `json:"used" doc:"current use of all programs of the user or tenant; memory and daemon_memory in bytes"`
	Limit    int64  `json:"limit" doc:"limit"`
	Refused  int64  `json:"refused" doc:"requests refused because of the limit"`
}

type peerRow struct {
	Prefix      string `json:"prefix" doc:"an IPv4 address or an IPv6 /64, or a network: an IPv4 /24 or an IPv6 /48"`
	HalfOpen    int    `json:"half_open" doc:"TCP handshakes in progress"`
	Startup     int    `json:"startup" doc:"MPA start-ups in progress"`
	Connections int    `json:"connections" doc:"established connections"`
	Refused     uint64 `json:"refused" doc:"connections refused because of a limit"`
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
