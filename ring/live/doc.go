// Package live transmits frames as XDP live frames: BPF_PROG_RUN with BPF_F_TEST_XDP_LIVE_FRAMES has the
// kernel run a program over pages of a page pool, which fills each with the next frame of the writer and
// redirects it to the device. No socket buffer is made, and a veth does not copy the frame once more for the
// headroom that its XDP program needs. A few frames, for which a run costs too much, leave through the
// Port below. All frames arrive there.
//
// A call is synchronous: when Flush returns, the frames were copied and their slots are free. It makes and
// frees a page pool, some 20 us; from MinRun frames on it pays. A frame lies within one page: see Room. The
// device must have ndo_xdp_xmit, which a veth has only while its peer has an XDP program or GRO (netdev's
// NDO_XMIT feature): otherwise frames are lost silently.
//
// The program must be attached somewhere meanwhile, to any interface in any mode. Else each call takes it into the
// kernel's dispatcher of XDP programs and out again, and waits for RCU twice: 44 ms were measured on a busy machine.
package live
