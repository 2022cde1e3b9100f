package xfrm

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"

	"xwarp/engine/host/netwatch"
)

// client sends requests to the kernel. Its methods may be called from any goroutine.
type client struct {
	socket  *nl.SocketHandle
	sockets *os.File // a file that lists the netlink sockets of the namespace
}

// Table has the policies and SAs of a network namespace at one moment, whichever program installed them.
type Table struct {
	SAs      []*SA
	Policies []*Policy
	Daemon   error // why no IKE daemon receives the kernel's requests; nil if one does
}

// Read reads the table of the calling thread's network namespace. It needs CAP_NET_ADMIN.
func Read() (t Table, err error) {
	c, err := newClient()
	if err != nil {
		return t, explained(err)
	}
	defer c.close()
	if t.SAs, err = c.sas(); err == nil {
		t.Policies, err = c.policies()
	}
	t.Daemon = c.daemonListens()
	return t, explained(err)
}

// explained adds to an error of the kernel what the user must provide.
func explained(err error) error {
	switch {
	case errors.Is(err, unix.EPERM):
		return fmt.Errorf("%w (CAP_NET_ADMIN is needed)", err)
	case errors.Is(err, unix.EPROTONOSUPPORT):
		return fmt.Errorf("%w (no XFRM in this kernel: load the module xfrm_user, or use a kernel "+
			"with CONFIG_XFRM_USER)", err)
	}
	return err
}

// newClient opens a socket in the network namespace of the calling thread.
func newClient() (*client, error) {
	list, err := os.Open("/proc/thread-self/net/netlink")
	if err != nil {
		return nil, err
	}
	s, err := netwatch.Socket(unix.NETLINK_XFRM)
	if err != nil {
		list.Close()
		return nil, err
	}
	return &client{s, list}, nil
}

func (c *client) close() {
	c.socket.Close()
	c.sockets.Close()
}

// errNoDaemon says that no IKE daemon receives the kernel's requests.
var errNoDaemon = errors.New("no IKE daemon is running: start one, such as strongSwan " +
	"with its kernel-netlink plugin")

// daemonListens returns errNoDaemon unless a socket is subscribed to XFRM_MSG_ACQUIRE.
func (c *client) daemonListens() error {
	listens := false
	err := c.eachSocket(func(_, groups uint32) error {
		listens = listens || groups&(1<<(nl.XFRMNLGRP_ACQUIRE-1)) != 0
		return nil
	})
	if err == nil && !listens {
		err = errNoDaemon
	}
	return err
}

// eachSocket calls f for each XFRM socket of the namespace until f fails. It may call f more than once for a socket.
func (c *client) eachSocket(f func(port, groups uint32) error) error {
	// The columns are address, protocol, port and groups in hex.
	lines := bufio.NewScanner(io.NewSectionReader(c.sockets, 0, 1<<30))
	for lines.Scan() {
		s := strings.Fields(lines.Text())
		if len(s) < 4 || s[1] != fmt.Sprint(unix.NETLINK_XFRM) {
			continue
		}
		port, err := strconv.ParseUint(s[2], 10, 32)
		groups, err2 := strconv.ParseUint(s[3], 16, 32)
		if err = errors.Join(err, err2); err == nil {
			err = f(uint32(port), uint32(groups))
		}
		if err != nil {
			return err
		}
	}
	return lines.Err()
}

// request sends a message and returns the answers.
func (c *client) request(kind, flags int, parts ...nl.NetlinkRequestData) ([][]byte, error) {
	req := nl.NewNetlinkRequest(kind, flags)
	req.Sockets = map[int]*nl.SocketHandle{unix.NETLINK_XFRM: c.socket}
	for _, p := range parts {
		req.AddData(p)
	}
	return req.Execute(unix.NETLINK_XFRM, 0)
}

// dumpTries is how many times a table is read if it changes during each read.
const dumpTries = 8

// list dumps a table and returns the results of parse for its messages, without nil results: parse returns nil for an
// entry that is not for ESP. list clears each message afterwards, because that of an SA has the key.
func list[T any](c *client, kind int, what string, parse func([]byte) (*T, error)) (all []*T,
	err error) {
	var messages [][]byte
	for range dumpTries {
		messages, err = c.request(kind, unix.NLM_F_DUMP)
		if !errors.Is(err, nl.ErrDumpInterrupted) {
			break
		}
	}
	if err != nil {
		return nil, fmt.Errorf("reading the %s: %w", what, err)
	}
	for _, b := range messages {
		v, err := parse(b)
		clear(b)
		if err != nil {
			return nil, err
		}
		if v != nil {
			all = append(all, v)
		}
	}
	return all, nil
}

// sas returns all SAs of ESP.
func (c *client) sas() ([]*SA, error) { return list(c, nl.XFRM_MSG_GETSA, "SAs", parseSA) }

// policies returns the policies that require ESP.
func (c *client) policies() ([]*Policy, error) {
	return list(c, nl.XFRM_MSG_GETPOLICY, "policies", parsePolicy)
}

// reread returns the current state of an SA in the kernel. The error is unix.ESRCH if it is gone.
func (c *client) reread(sa *SA) (*SA, error) {
	id := &nl.XfrmUsersaId{Daddr: sa.info.Id.Daddr, Spi: sa.info.Id.Spi, Family: sa.info.Family,
		Proto: sa.info.Id.Proto}
	list, err := c.request(nl.XFRM_MSG_GETSA, 0, withMark(sa.mark, id)...)
	if err != nil {
		return nil, err
	}
	if len(list) == 0 {
		return nil, unix.ESRCH
	}
	now, err := parseSA(list[0])
	clear(list[0])
	if now == nil && err == nil { // it was deleted, and its SPI is reserved for another one
		err = unix.ESRCH
	}
	return now, err
}

// withMark appends a mark, which is part of the key of an SA or policy.
func withMark(mark []byte, parts ...nl.NetlinkRequestData) []nl.NetlinkRequestData {
	if mark != nil {
		parts = append(parts, nl.NewRtAttr(nl.XFRMA_MARK, mark))
	}
	return parts
}

// aevent is struct xfrm_aevent_id.
type aevent struct {
	id    nl.XfrmUsersaId
	saddr nl.XfrmAddress
}

func (a *aevent) Len() int { return 48 }

func (a *aevent) Serialize() []byte {
	b := append(append(make([]byte, 0, a.Len()), a.id.Serialize()...), a.saddr[:]...)
	return b[:a.Len()] // flags and reqid are not read
}

// newAE changes counters of an SA (XFRM_MSG_NEWAE).
func (c *client) newAE(sa *SA, what *nl.RtAttr) error {
	a := &aevent{saddr: sa.info.Saddr, id: nl.XfrmUsersaId{Daddr: sa.info.Id.Daddr,
		Spi: sa.info.Id.Spi, Family: sa.info.Family, Proto: sa.info.Id.Proto}}
	_, err := c.request(nl.XFRM_MSG_NEWAE, unix.NLM_F_ACK|unix.NLM_F_REPLACE,
		withMark(sa.mark, a, what)...)
	return err
}

// account reports the traffic of an SA to the kernel, for the IKE daemon.
func (c *client) account(sa *SA, packets, bytes uint64) error {
	v := sa.info.Curlft
	v.Packets, v.Bytes, v.UseTime = packets, bytes, uint64(time.Now().Unix())
	if v.AddTime == 0 { // 0 would make the SA as old as the epoch
		v.AddTime = v.UseTime
	}
	b := make([]byte, 0, nl.SizeofXfrmLifetimeCur)
	for _, n := range []uint64{v.Bytes, v.Packets, v.AddTime, v.UseTime} {
		b = native.AppendUint64(b, n)
	}
	return c.newAE(sa, nl.NewRtAttr(nl.XFRMA_LTIME_VAL, b))
}

// expire makes the kernel announce that an SA reached a limit. If hard is set, the kernel deletes the SA.
func (c *client) expire(sa *SA, hard bool) error {
	m := &nl.XfrmUserExpire{XfrmUsersaInfo: sa.info}
	if hard {
		m.Hard = 1
	}
	_, err := c.request(nl.XFRM_MSG_EXPIRE, unix.NLM_F_ACK, withMark(sa.mark, m)...)
	return err
}

// acquireMessage is struct xfrm_user_acquire.
type acquireMessage struct{ policy *Policy }

func (a acquireMessage) Len() int { return 280 }

func (a acquireMessage) Serialize() []byte {
	p := a.policy
	b := make([]byte, 0, a.Len())
	id := p.template.XfrmId
	id.Spi = 0
	b = append(b, id.Serialize()...)
	b = append(b, p.template.Saddr[:]...)
	b = append(b, p.info.Sel.Serialize()...)
	b = append(b, p.info.Serialize()...)
	for range 3 { // any algorithm
		b = native.AppendUint32(b, 1<<32-1)
	}
	return b[:a.Len()] // the kernel chooses the sequence number
}

// acquire makes the kernel request SAs from the IKE daemon, as if a packet had matched p. It fails if no daemon is
// running.
func (c *client) acquire(p *Policy) error {
	if err := c.daemonListens(); err != nil {
		return err
	}
	parts := withMark(p.mark, acquireMessage{p},
		nl.NewRtAttr(nl.XFRMA_TMPL, p.template.Serialize()))
	if p.IfID != 0 {
		parts = append(parts, nl.NewRtAttr(nl.XFRMA_IF_ID, native.AppendUint32(nil, p.IfID)))
	}
	_, err := c.request(nl.XFRM_MSG_ACQUIRE, unix.NLM_F_ACK, parts...)
	return err
}
