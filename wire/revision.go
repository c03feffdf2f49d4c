package wire

// Revision is the compatibility identity of this wire. It is frozen: a field, a
// tag, a frame or an endpoint more is another literal.
const Revision = "checkfu.sandbox-wire.v1"

// Media types of bodies. There is no other, and no parameter beside them.
const (
	MediaJSON   = "application/json"
	MediaFrames = "application/vnd.checkfu.frames"
)
