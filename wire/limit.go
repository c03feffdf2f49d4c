package wire

// Bounds of the wire. Sizes are bytes, times are milliseconds.
// Source: contract "Bounds", and room for framing around it.
const (
	MaxFrameBytes  = 1 << 20           // payload of one frame
	MaxOutputChunk = MaxFrameBytes - 8 // bytes of one out or err frame, after its offset

	// A request of 1,024 paths of 4,096 bytes each, plain UTF-8, fits.
	MaxRequestBytes        = 8 << 20  // a JSON request body, and the call of a framed one
	MaxResponseBytes       = 8 << 20  // a JSON response body
	MaxFramedRequestBytes  = 25 << 20 // 16 MiB of bytes, a call and the frames around them
	MaxExecuteBytes        = 34 << 20 // a framed response of execute
	MaxReadFileBytes       = 17 << 20 // of read_file
	MaxReadFilesBytes      = 130 << 20
	MaxListingBytes        = 64 << 20
	MaxInputBytes          = 256 << 10 // bytes of one process_input
	MaxInputRequestBytes   = MaxInputBytes + 4096
	MaxHeaderBytes         = 16 << 10
	MaxErrorBytes          = 128 << 10 // an error body: two texts of 4,096 bytes, each escaped, fit
	MaxErrorTextBytes      = 4096      // any text of an error but its message
	MaxMessageBytes        = 1024      // the message of an error
	MaxPageEntries         = 1000      // entries of one listing page
	MaxRetryAfterMS        = 60_000
	MaxWaitMS              = 30_000 // longest hold of one request
	DefaultWaitMS          = 20_000 // below the common 60 s idle limit of proxies
	MinHeartbeatMS         = 1_000
	MaxHeartbeatMS         = 30_000
	DefaultHeartbeatMS     = 10_000
	MinOutputWindowBytes   = 4 << 20 // a one-shot's whole capped output fits
	MaxOutputWindowBytes   = 64 << 20
	DefaultOutputWindow    = 8 << 20
	MinInputBufferBytes    = 64 << 10
	MaxInputBufferBytes    = 4 << 20
	DefaultInputBuffer     = 256 << 10
	ErrorWindowBytes       = 64 << 10 // the side ring of a process's standard error
	RewindBytes            = 64 << 10 // how far below its cursor a replay may begin
	DrainSeconds           = 10       // after an exit, until standard output is ended by force
	TombstoneSeconds       = 24 * 60 * 60
	MaxTokenBytes          = 512
	MinTokenBytes          = 32
	maxHeaderValueBytes    = 1024
	maxSupportedRevisions  = 16
	maxSupportedTextLength = 128
)
