package evidence

import (
	"bytes"
	"crypto/ed25519"
	"encoding/hex"
	"strconv"
)

// parseHex reads exactly n bytes of lower-case hex: one key, one spelling.
func parseHex(reason Reason, field, s string, n int) ([]byte, *Refused) {
	b, err := hex.DecodeString(s)
	if err != nil || len(b) != n || hex.EncodeToString(b) != s {
		return nil, refuse(reason, field, strconv.Itoa(2*n)+" lower-case hex digits", s)
	}
	return b, nil
}

// lowOrder are the five y coordinates of the eight points of low order, little
// endian. Under such a key everybody can sign: for the neutral element any R = [S]B
// verifies over any message. crypto/ed25519 accepts them, so they are kept out
// of every set.
var lowOrder = [...][ed25519.PublicKeySize]byte{
	{},  // order 4: y = 0
	{1}, // order 1, the neutral element: y = 1
	{ // order 2: y = -1
		0xec, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff,
		0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x7f},
	{ // order 8
		0x26, 0xe8, 0x95, 0x8f, 0xc2, 0xb2, 0x27, 0xb0, 0x45, 0xc3, 0xf4, 0x89, 0xf2, 0xef, 0x98, 0xf0,
		0xd5, 0xdf, 0xac, 0x05, 0xd3, 0xc6, 0x33, 0x39, 0xb1, 0x38, 0x02, 0x88, 0x6d, 0x53, 0xfc, 0x05},
	{ // order 8: the negative of the one before
		0xc7, 0x17, 0x6a, 0x70, 0x3d, 0x4d, 0xd8, 0x4f, 0xba, 0x3c, 0x0b, 0x76, 0x0d, 0x10, 0x67, 0x0f,
		0x2a, 0x20, 0x53, 0xfa, 0x2c, 0x39, 0xcc, 0xc6, 0x4e, 0xc7, 0xfd, 0x77, 0x92, 0xac, 0x03, 0x7a},
}

// parseKey reads a public key that may be listed: 32 bytes, y below the field's
// prime (so that one key has one encoding), and not of low order.
func parseKey(field, s string) (ed25519.PublicKey, *Refused) {
	key, err := parseHex(ReasonKey, field, s, ed25519.PublicKeySize)
	if err != nil {
		return nil, err
	}
	return key, checkKey(field, key)
}

func checkKey(field string, key ed25519.PublicKey) *Refused {
	y := bytes.Clone(key)
	y[len(y)-1] &= 0x7f // the sign of x
	for i := range lowOrder {
		if bytes.Equal(y, lowOrder[i][:]) {
			return refuse(ReasonKey, field, "a key of high order", hex.EncodeToString(key))
		}
	}
	// 2^255-19 and the eighteen above it are all that 255 bits hold beyond p-1.
	high := y[0] >= 0xed && y[len(y)-1] == 0x7f
	for _, b := range y[1 : len(y)-1] {
		high = high && b == 0xff
	}
	if high {
		return refuse(ReasonKey, field, "a coordinate below the field's prime", hex.EncodeToString(key))
	}
	return nil
}
