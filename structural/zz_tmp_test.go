package structural

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestTmpNoise(t *testing.T) {
	n, bad := 0, 0
	for _, root := range []string{"../config", "../examples", "/root/go/pkg/mod/sigs.k8s.io", "/root/go/pkg/mod/k8s.io", "/root/go/pkg/mod/github.com"} {
		filepath.Walk(root, func(p string, i os.FileInfo, err error) error {
			if err != nil || i.IsDir() || !strings.HasSuffix(p, ".yaml") || i.Size() > 1<<20 || strings.Contains(p, "controller-tools") {
				return nil
			}
			b, _ := os.ReadFile(p)
			if !strings.Contains(string(b), "kind: CustomResourceDefinition") {
				return nil
			}
			for _, doc := range strings.Split(string(b), "\n---") {
				o, err := parseObject(doc)
				if err != nil || o["kind"] != "CustomResourceDefinition" {
					continue
				}
				n++
				f, err := Check(o)
				if err != nil || len(f) > 0 {
					bad++
					s := list(f)
					if len(s) > 1200 { s = s[:1200] }
					if !strings.Contains(s, "RemovedAPI") { fmt.Println(p, err, "\n", s) }
				}
			}
			return nil
		})
	}
	fmt.Println(n, bad)
}
