// Package transfer copies files to and from a directory of a server over a queue pair. Control messages are Sends; the
// bytes move by RDMA Write and RDMA Read, which the client alone drives.
//
//	client                              server
//	Stat | Mkdir | SetAttr   ────────►  looks below its directory only
//	                         ◄────────  Attr{kind, mode, length, time}
//
//	List{path}               ────────►
//	                         ◄────────  Region{STag, length}: names with their Attr
//	RDMA Reads               ════════►
//	Done                     ────────►
//
//	Buffer                   ────────►  makes a buffer for this client
//	                         ◄────────  Region{STag, length}
//
//	Store{path, attr, session} ──────►  makes a staged file, or finds one that was cut off
//	                         ◄────────  Opened{attr, a part was there}
//	RDMA Write               ════════►  to a place in the buffer
//	StoreBytes{offset, length, place, XXH64} ►  compares, and writes these bytes to the file
//	                         ◄────────  Bytes{offset, length}
//
//	Fetch{path}              ────────►  opens the file
//	                         ◄────────  Opened{attr}
//	FetchBytes{offset, length, place} ►  reads bytes of the file into the buffer
//	                         ◄────────  Bytes{offset, length, XXH64}
//	RDMA Read                ════════►  from that place; the client compares
//
//	Close{whole}             ────────►  gives a stored file its name, or checks whether a fetched one changed
//	                         ◄────────  Attr
//
// Either side may send Error instead of the expected message, and sends Beat every few seconds, so that a slow peer can
// be told from one that is gone or stopped. An Error about a file ends the request only; its code is CodeFile or
// CodeTooLarge.
//
// A connection has at most one file open. Connections with the same session write one file together; the last one that
// has it open closes it as complete. A client sends several requests before it waits for the first answer. Each request
// has a place of its own in the buffer, which stays until the connection ends.
//
// A stream is a file whose length is unknown at its Store, with FlagStream: each StoreBytes at its end makes it longer.
// One connection writes it, and it cannot be resumed.
//
// XXH64 detects errors of a transfer, at the speed of memory. SHA-256 decides whether two files are the same, because
// an attacker may have chosen their bytes. A client that resumes a file, or compares files, asks for the Sum of each
// piece.
//
// A file is written under a temporary name in the same directory, flushed to the disk, and renamed when it is complete:
// after a crash its name has all of the old content or all of the new one. Files of a pack are flushed by Sync only:
// before that, a new one may be empty after a power failure. A fetch continues with the file that it opened, even if
// another one takes its name.
//
// While others wait for a connection or for the name of a file, a transfer that moves less than minRate is ended, and
// so is the connection of a client that sends no request. Beats do not count as progress.
package transfer
