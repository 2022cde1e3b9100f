// Package rping is the ping that rdma-core's rping speaks, over this engine: the client shows a buffer, the
// server reads it by RDMA Read, says go-ahead, is shown a second buffer, writes the data there by RDMA Write
// and says go-ahead again.
//
//	client                                  server
//	  Send {address, STag, size of source} ──►
//	                                  ◄── RDMA Read of the source
//	                                  ◄── Send (go-ahead)
//	  Send {address, STag, size of sink}   ──►
//	                                  ◄── RDMA Write into the sink, of the text with its final zero
//	                                  ◄── Send (go-ahead)
//
// and so on until the client closes. Every Send has 16 bytes; what is in the server's does not count.
package rping
