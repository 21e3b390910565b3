package front

import (
	"os"
	"path/filepath"
	"testing"
)

func TestLeftoversGo(t *testing.T) {
	t.Setenv("TMPDIR", t.TempDir())
	alive := must(newTempDir())
	// A killed process leaves its directory and an unlocked lock file.
	dead := filepath.Join(os.TempDir(), tempPrefix+"dead")
	if err := os.MkdirAll(filepath.Join(dead, "ds-0"), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(dead+lockSuffix, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	next := must(newTempDir())
	if _, err := os.Stat(dead); !os.IsNotExist(err) {
		t.Errorf("the dead one's directory: %v", err)
	}
	if _, err := os.Stat(alive.path); err != nil {
		t.Errorf("the living one's directory: %v", err)
	}
	alive.remove()
	next.remove()
	if left, _ := os.ReadDir(os.TempDir()); len(left) != 0 {
		t.Errorf("left: %v", left)
	}
}
