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
//	                         ◄────────  Opened{attr, something was there}
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
//	Close{whole}             ────────►  gives a stored file its name, or looks whether a fetched one changed
//	                         ◄────────  Attr
//
// Either side may send Error instead of what is due, and sends Beat every few seconds, so that a slow peer differs from
// one that is gone or stopped. An Error about a file ends the request only; its code is CodeFile or CodeTooLarge.
//
// A connection has one file open; those with the same session write one file together, and the last one that has
// it open closes it as whole. A client sends several requests before it waits for the first answer. Each has a place of
// its own in the buffer, which stays until the connection ends.
//
// A stream is a file whose length is unknown at its Store, with FlagStream: each StoreBytes at its end makes it longer.
// One connection writes it, and it cannot be resumed.
//
// XXH64 finds what a transfer did wrong, at the speed of memory. SHA-256 decides whether two files are the same, for
// others may have chosen their bytes. A client that resumes a file, or compares files, asks for the Sum of each piece.
//
// A file is written under another name beside its own, goes to the disk, and gets its name when it is whole: whatever
// dies, a restart finds all of the old content or all of the new one. A fetch goes on with the file that it opened.
//
// While others wait for a connection or for the name of a file, a transfer that moves less than minRate ends, and so
// does the connection of a client that asks for nothing. Beats are no progress.
package transfer
