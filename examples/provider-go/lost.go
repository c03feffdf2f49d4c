package main

import (
	"errors"
	"os"
	"path/filepath"

	"github.com/checkfu/checkfu/sandbox"
)

// An instance ends with its provider. Where the journal does not, the next one
// has to know which it was: its caller asks for it, and a sweep names it. Its
// directory stays for that, empty, with its deadline for a time.

// loadLost finds the instances of an earlier provider.
func (p *provider) loadLost() error {
	entries, err := os.ReadDir(p.instanceDir())
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	for _, entry := range entries {
		info, ierr := entry.Info()
		if err = errors.Join(err, ierr); err != nil {
			return err
		}
		if entry.Name() != probeName {
			p.lost[sandbox.InstanceID(entry.Name())] = sandbox.At(info.ModTime())
		}
	}
	return err
}

// mark makes the empty directory of an instance that has ended.
func (p *provider) mark(id sandbox.InstanceID, deadline sandbox.Timestamp) error {
	dir := filepath.Join(p.instanceDir(), string(id))
	return errors.Join(mkdir(dir), date(dir, deadline))
}

// date gives a directory a deadline for its time. Without root a workload's files
// lie in it, and it has the time of the last of them: it is swept the sooner.
func date(dir string, deadline sandbox.Timestamp) error {
	at, err := deadline.Time()
	if err != nil {
		return err
	}
	return os.Chtimes(dir, at, at)
}

// forget removes it again.
func (p *provider) forget(id sandbox.InstanceID) error {
	p.mu.Lock()
	_, known := p.lost[id]
	delete(p.lost, id)
	p.mu.Unlock()
	if !known {
		return nil
	}
	return os.RemoveAll(filepath.Join(p.instanceDir(), string(id)))
}
