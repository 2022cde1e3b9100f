package startup

// MaxPrivateData is the largest private data of a start-up frame in bytes, including RFC 6581's four (RFC 5044, 7.1.1).
const MaxPrivateData = 512
