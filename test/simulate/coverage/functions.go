package main

import (
	"cmp"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"slices"
	"strings"
)

// function is a function of a file, or a variable whose value contains functions.
type function struct {
	file, name string
	from, to   position
}

// key returns the name of a function in unreached.txt: fleet/policy/rollout/plan.go:Plan.outer.
func (f *function) key() string { return f.file + ":" + f.name }

// sources contains the functions of each file, in their order. It is read when the program is compiled, because files
// may change during a long run.
type sources map[string][]function

// readSources reads the files of all parts.
func readSources(root fs.FS) (sources, error) {
	all := sources{}
	for _, p := range parts {
		files, err := fs.Glob(root, p.folder+"/*.go")
		if err != nil {
			return nil, err
		}
		for _, file := range files {
			if strings.HasSuffix(file, "_test.go") || all[file] != nil {
				continue
			}
			if all[file], err = functionsOf(root, file); err != nil {
				return nil, fmt.Errorf("reading the functions of %s: %w", file, err)
			}
		}
	}
	return all, nil
}

// functionsOf returns the functions of a file, in their order.
func functionsOf(root fs.FS, file string) ([]function, error) {
	text, err := fs.ReadFile(root, file)
	if err != nil {
		return nil, err
	}
	set := token.NewFileSet()
	parsed, err := parser.ParseFile(set, file, text, parser.SkipObjectResolution)
	if err != nil {
		return nil, err
	}
	var all []function
	add := func(name string, n ast.Node) {
		from, to := set.Position(n.Pos()), set.Position(n.End())
		all = append(all, function{file, name, position{from.Line, from.Column}, position{to.Line, to.Column}})
	}
	for _, d := range parsed.Decls {
		switch d := d.(type) {
		case *ast.FuncDecl:
			add(nameOf(d), d)
		case *ast.GenDecl:
			for _, s := range d.Specs {
				if v, ok := s.(*ast.ValueSpec); ok {
					add(v.Names[0].Name, v)
				}
			}
		}
	}
	return all, nil
}

// nameOf returns the name of a function, with the type of its receiver.
func nameOf(d *ast.FuncDecl) string {
	if d.Recv == nil {
		return d.Name.Name
	}
	of := d.Recv.List[0].Type
	if pointer, ok := of.(*ast.StarExpr); ok {
		of = pointer.X
	}
	switch generic := of.(type) {
	case *ast.IndexExpr:
		of = generic.X
	case *ast.IndexListExpr:
		of = generic.X
	}
	return fmt.Sprintf("%s.%s", of, d.Name.Name)
}

// holding returns the function to which a block belongs.
func (s sources) holding(b block) (*function, error) {
	functions := s[b.file]
	i, exact := slices.BinarySearchFunc(functions, b.from, func(f function, at position) int { return f.from.compare(at) })
	if !exact {
		i--
	}
	if i < 0 || functions[i].to.compare(b.to) < 0 {
		return nil, fmt.Errorf("%s:%d: want a function around the block: the file has changed while it was compiled", b.file, b.from.line)
	}
	return &functions[i], nil
}

// unreachedFile lists the functions that no simulation can reach.
const unreachedFile = "test/simulate/coverage/unreached.txt"

// parseUnreached returns the reasons by function, from lines with a key and a reason in the order of the keys.
func parseUnreached(name, text string) (map[string]string, error) {
	reasons, last := map[string]string{}, ""
	for n, line := range strings.Split(text, "\n") {
		if line == "" || strings.HasPrefix(line, "#") {
			continue
		}
		key, reason, _ := strings.Cut(line, " ")
		switch {
		case strings.TrimSpace(reason) == "" || !strings.Contains(key, ".go:"):
			return nil, fmt.Errorf("%s:%d: want file.go:Function and a reason, got %q", name, n+1, line)
		case cmp.Compare(last, key) >= 0:
			return nil, fmt.Errorf("%s:%d: want functions in their order and each once, got %s after %s", name, n+1, key, last)
		}
		reasons[key], last = strings.TrimSpace(reason), key
	}
	return reasons, nil
}
