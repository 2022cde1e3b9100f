// Package transfer moves files over a queue pair: a server has one region of memory, clients put content into
// it and get it back; or it has a directory, and clients copy files to and from it. Control messages are Sends;
// the bytes move by RDMA Write and RDMA Read, which the client alone drives.
//
//	client                              server
//	Put{length | Unknown}    ────────►  waits for memory, makes a staging region
//	                         ◄────────  Region{STag, TO, length}
//	RDMA Writes              ════════►
//	Put{Unknown}             ────────►  only where fewer bytes were granted than there may be
//	                         ◄────────  Region{STag, TO, length} replaces the previous region
//	RDMA Writes              ════════►
//	Done{length, SHA-256}    ────────►  takes the STag away, compares, makes it the content
//	                         ◄────────  Done{length, SHA-256}
//
//	Get{length | 0}          ────────►  holds the content of the moment
//	                         ◄────────  Region{STag, TO, length, SHA-256}
//	RDMA Reads               ════════►
//	Done{length, SHA-256}    ────────►  lets it go
//
// Either side may send Error instead of what is due, and sends Beat every few seconds, so that a peer that is gone or
// stopped is told from one that is slow.
//
// # Directories
//
//	client                              server
//	Stat | Mkdir{path}       ────────►  looks below its directory only
//	                         ◄────────  Attr{kind, mode, length, time}
//
//	List{path}               ────────►
//	                         ◄────────  Region{STag, TO, length}: names with their Attr
//	RDMA Reads               ════════►
//	Done                     ────────►
//
//	Buffer                   ────────►  makes a buffer for this client
//	                         ◄────────  Region{STag, TO, length}
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
// A connection has one file open; those with the same session write one file together, and the last one that has
// it open closes it as whole. A client sends several requests before it waits for the first answer. Each
// has a place of its own in the buffer, which stays until the connection ends. An Error about a file ends the request
// only; its code is CodeFile or CodeTooLarge.
//
// XXH64 finds what a transfer did wrong, at the speed of memory. SHA-256 decides whether two files are the same, for
// others may have chosen their bytes. A client that goes on with a file, or compares files, asks for the Sum of each
// piece.
//
// # Several clients
//
// A content never changes. A put replaces it at once and as a whole, when its SHA-256 is right; a get reads to the end
// the content that existed when it began. A put that fails at any point changes nothing. The STag of a region is valid
// for one client and for one transfer.
//
// Puts run side by side as long as there is memory for their bytes, of each address no more than the region
// has, then they wait in order of arrival. Replaced contents that gets still read count too, and the oldest
// goes when a put needs the memory.
//
// # Files
//
// A put into a region that is a file writes to a staged file beside it, whose mapping is what the client's
// RDMA Writes reach: nothing is copied. When it is whole it says what its SHA-256 is, in an extended
// attribute, goes to the disk and gets the name: whatever dies, a restart finds all of the old content or all
// of the new one, with its length and SHA-256. Gets go on with the content that they began with. A file that
// must stay the file that it is gets the same content through a journal: the staged file, which is renamed to
// be one, and is copied into the file now or at the next start.
//
// While others wait for memory or for a connection, a transfer that moves less than minRate ends, and so does the
// connection of a client that asks for nothing. Beats are no progress.
package transfer
