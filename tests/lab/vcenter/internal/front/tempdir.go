package front

import (
	"os"
	"path/filepath"
	"strings"
	"syscall"
)

const (
	tempPrefix = "agent-forge-vcenter-"
	lockSuffix = ".lock"
)

// tempDir has the datastores' files. A lock file beside it is locked as long as
// the process lives. With it a later process can remove the directory of a
// killed one.
type tempDir struct {
	path string
	lock *os.File
}

func newTempDir() (*tempDir, error) {
	sweepTempDirs()
	for {
		lock, err := os.CreateTemp("", tempPrefix+"*"+lockSuffix)
		if err != nil {
			return nil, err
		}
		if err := syscall.Flock(int(lock.Fd()), syscall.LOCK_EX); err != nil {
			_ = lock.Close()
			return nil, err
		}
		if _, err := os.Stat(lock.Name()); err != nil {
			// Before it was locked, another process took it for abandoned.
			_ = lock.Close()
			continue
		}
		d := &tempDir{path: strings.TrimSuffix(lock.Name(), lockSuffix), lock: lock}
		if err := os.Mkdir(d.path, 0o700); err != nil {
			d.remove()
			return nil, err
		}
		return d, nil
	}
}

func (d *tempDir) remove() {
	_ = os.RemoveAll(d.path)
	_ = os.Remove(d.lock.Name())
	_ = d.lock.Close()
}

// sweepTempDirs removes the directories whose process has ended.
func sweepTempDirs() {
	locks, err := filepath.Glob(filepath.Join(os.TempDir(), tempPrefix+"*"+lockSuffix))
	if err != nil {
		return
	}
	for _, name := range locks {
		lock, err := os.Open(name)
		if err != nil {
			continue
		}
		if syscall.Flock(int(lock.Fd()), syscall.LOCK_EX|syscall.LOCK_NB) == nil {
			_ = os.RemoveAll(strings.TrimSuffix(name, lockSuffix))
			_ = os.Remove(name)
		}
		_ = lock.Close()
	}
}
