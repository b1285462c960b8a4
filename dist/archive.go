package main

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"
)

// file is one in an archive. It belongs to root, and is as old as the commit.
type file struct {
	name string // Without a leading slash.
	mode int64
	data []byte
	link string // What it is a symbolic link to; "" if it is none.
}

// archive writes the tar.gz of a binary: with the kubectl plugin, man pages, completions and the license, in a folder.
func (r *release) archive(b binary, completions map[string][]byte) error {
	program, err := os.ReadFile(b.path)
	if err != nil {
		return err
	}
	license, err := os.ReadFile(filepath.Join(r.source, "LICENSE"))
	if err != nil {
		return err
	}
	files := []file{
		{name: "LICENSE", mode: 0o644, data: license},
		{name: "bin/refract", mode: 0o755, data: program},
		{name: "bin/kubectl-refract", mode: 0o777, link: "refract"},
		{name: "bin/kubectl_complete-refract", mode: 0o777, link: "refract"},
	}
	for shell, text := range completions {
		files = append(files, file{name: "completions/" + shell + "/" + shells[shell], mode: 0o644, data: text})
	}
	pages, err := filepath.Glob(filepath.Join(r.source, "docs", "man", "*.1"))
	if err != nil {
		return err
	}
	for _, page := range pages {
		text, err := os.ReadFile(page)
		if err != nil {
			return err
		}
		files = append(files, file{name: "share/man/man1/" + filepath.Base(page), mode: 0o644, data: text})
	}
	path := r.name(b.platform, ".tar.gz")
	folder := strings.TrimSuffix(filepath.Base(path), ".tar.gz") + "/"
	for i := range files {
		files[i].name = folder + files[i].name
	}
	var packed bytes.Buffer
	zip := gzip.NewWriter(&packed)
	if err := writeTar(zip, files, r.created); err != nil {
		return err
	}
	if err := zip.Close(); err != nil {
		return err
	}
	return os.WriteFile(path, packed.Bytes(), 0o644)
}

// writeTar writes an archive that depends on nothing but the files and the time: they are sorted by name, and belong to
// root. Folders are not written: whoever unpacks makes them.
func writeTar(w io.Writer, files []file, at time.Time) error {
	files = slices.SortedFunc(slices.Values(files), func(a, b file) int { return strings.Compare(a.name, b.name) })
	t := tar.NewWriter(w)
	for _, f := range files {
		h := &tar.Header{Name: f.name, Mode: f.mode, Size: int64(len(f.data)), ModTime: at, Typeflag: tar.TypeReg, Format: tar.FormatUSTAR}
		if f.link != "" {
			h.Typeflag, h.Linkname = tar.TypeSymlink, f.link
		}
		if err := t.WriteHeader(h); err != nil {
			return err
		}
		if _, err := t.Write(f.data); err != nil {
			return err
		}
	}
	return t.Close()
}
