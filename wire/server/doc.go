// Package server serves a sandbox provider over the wire.
package server
