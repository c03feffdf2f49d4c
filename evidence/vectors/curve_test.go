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

// overEncoding is R and the S that belongs to it where R is the neutral element,
// in whatever encoding: S = H(R, A, M)·a. A verifier that decodes R takes both
// encodings; one that compares bytes takes one.
func overEncoding(key ed25519.PrivateKey, r string, message []byte) string {
	head, err := hex.DecodeString(r)
	if err != nil {
		panic(err)
	}
	scalar, err := hex.DecodeString(sha512Scalar(key))
	if err != nil {
		panic(err)
	}
	h := sha512.Sum512(slices.Concat(head, key[ed25519.SeedSize:], message))
	s := new(big.Int).Mul(little(h[:]), little(scalar))
	return r + littleHex(s.Mod(s, order))
}

// malleable adds the order to S.
func malleable(signature string) string {
	b, err := hex.DecodeString(signature)
	if err != nil {
		panic(err)
	}
	return hex.EncodeToString(b[:32]) + littleHex(new(big.Int).Add(little(b[32:]), order))
}
