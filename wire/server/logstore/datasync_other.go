//go:build !linux

package logstore

import "os"

func datasync(file *os.File) error { return file.Sync() }
