package vectors_test

import (
	"crypto/ed25519"
	"crypto/sha512"
	"encoding/hex"
	"math/big"
	"slices"
)

// order is that of the group that Ed25519 signs in: 2^252 + 277…493.
var order = func() *big.Int {
	l, _ := new(big.Int).SetString("27742317777372353535851937790883648493", 10)
	return l.Add(l, new(big.Int).Lsh(big.NewInt(1), 252))
}()

// little reads and writes numbers as Ed25519 does: little endian, 32 bytes.
func little(b []byte) *big.Int {
	b = slices.Clone(b)
	slices.Reverse(b)
	return new(big.Int).SetBytes(b)
}

func littleHex(n *big.Int) string {
	b := n.FillBytes(make([]byte, 32))
	slices.Reverse(b)
	return hex.EncodeToString(b)
}

// sha512Scalar is the scalar of a private key, below the order: the number of
// which the public key is the multiple of the base point (RFC 8032, 5.1.5).
func sha512Scalar(key ed25519.PrivateKey) string {
	h := sha512.Sum512(key.Seed())
	h[0] &= 248
	h[31] &= 127
	h[31] |= 64
	return littleHex(new(big.Int).Mod(little(h[:32]), order))
}

// malleable adds the order to S.
func malleable(signature string) string {
	b, err := hex.DecodeString(signature)
	if err != nil {
		panic(err)
	}
	return hex.EncodeToString(b[:32]) + littleHex(new(big.Int).Add(little(b[32:]), order))
}
