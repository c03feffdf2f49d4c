package wire

// Bounds of bodies and frames, in bytes.
// Source: contract "Bounds", and room for the wire's own words around them.
const (
	MaxFrameBytes  = 1 << 20           // the payload of one frame
	MaxOutputChunk = MaxFrameBytes - 8 // the bytes of one out or err frame, behind their offset

	// MaxRequestBytes bounds a JSON request and the call of a framed one. A
	// request of 1,024 plain paths of 4,096 bytes each fits; one whose every byte
	// has to be escaped does not, and is refused before it is sent.
	MaxRequestBytes       = 8 << 20
	MaxResponseBytes      = 8 << 20   // a JSON response
	MaxFramedRequestBytes = 25 << 20  // the longest call, 16 MiB of content, the frames around them
	MaxExecuteBytes       = 34 << 20  // the response of execute
	MaxReadFileBytes      = 17 << 20  // the response of read_file
	MaxReadFilesBytes     = 130 << 20 // the response of read_files
	MaxListingBytes       = 64 << 20  // the response of list_dir and list_project_dir
	MaxPageEntries        = 1000      // entries of one item of a listing

	MaxInputBytes        = 256 << 10            // the data of one process_input
	MaxInputRequestBytes = MaxInputBytes + 4096 // its whole body

	MaxHeaderBytes    = 16 << 10  // all headers of a request or a response
	MaxErrorBytes     = 128 << 10 // an error body: two texts, with every byte escaped, fit
	MaxErrorTextBytes = 4096      // each text of an error but its message
	MaxMessageBytes   = 1024      // the message of an error

	MinTokenBytes = 32 // characters of a bearer token
	MaxTokenBytes = 512

	maxHeaderValueBytes    = 1024
	maxSupportedRevisions  = 16
	maxSupportedTextLength = 128
)

// Bounds of time, in milliseconds.
const (
	MaxRetryAfterMS    = 60_000
	MaxWaitMS          = 30_000 // the longest hold of one request
	DefaultWaitMS      = 20_000 // below the 60 s after which common proxies give up
	MinHeartbeatMS     = 1_000
	MaxHeartbeatMS     = 30_000
	DefaultHeartbeatMS = 10_000
	MaxDrainMS         = 10_000              // from an exit until standard output is ended by force
	JournalMS          = 24 * 60 * 60 * 1000 // how long an operation is remembered after its allocation ended
)

// Bounds of a live process's streams, in bytes.
// Source: contract "openProcess".
const (
	MinOutputWindowBytes     = 4 << 20 // the whole capped output of a one-shot fits
	MaxOutputWindowBytes     = 64 << 20
	DefaultOutputWindowBytes = 8 << 20
	MinInputBufferBytes      = 64 << 10
	MaxInputBufferBytes      = 4 << 20
	DefaultInputBufferBytes  = 256 << 10
	ErrorWindowBytes         = 64 << 10 // the ring of standard error; it does not count as output
	RewindBytes              = 64 << 10 // how far below its cursor a replay may begin
)
