package tree_test

import (
	"encoding/json"
	"fmt"

	"refract.dev/tree"
)

// A document shares all unedited parts with its original. Each edit returns a Change that describes it.
func ExampleDoc() {
	original := map[string]any{
		"spec": map[string]any{
			"replicas":   int64(3),
			"containers": []any{map[string]any{"name": "web", "image": "web:v1"}},
		},
	}
	doc := tree.Edit(original)
	var record tree.Record
	note := func(c tree.Change, err error) {
		if err != nil {
			fmt.Println(err)
			return
		}
		record.Add(c)
	}
	note(doc.Replace(tree.MustParse("/spec/containers/0/image"), "web:v2"))
	note(doc.Add(tree.MustParse("/spec/containers/0"), map[string]any{"name": "first"}))
	note(doc.Replace(tree.MustParse("/spec/containers/1/image"), "web:v3"))
	note(doc.Remove(tree.MustParse("/spec/paused")))

	for i, c := range record.Changes() {
		fmt.Println(i, c.Op, c.Path, "shadows", c.Shadows)
	}
	fmt.Println(text(doc.Root()))
	fmt.Println(text(original))
	// Output:
	// /spec/paused does not exist
	// 0 replace /spec/containers/0/image shadows []
	// 1 add /spec/containers/0 shadows []
	// 2 replace /spec/containers/1/image shadows [0]
	// {"spec":{"containers":[{"name":"first"},{"image":"web:v3","name":"web"}],"replicas":3}}
	// {"spec":{"containers":[{"image":"web:v1","name":"web"}],"replicas":3}}
}

// A thread finds the authors of a value, even if the value moved inside an array.
func ExampleTrace() {
	doc := tree.Edit(map[string]any{"args": []any{"-v", "--port=80"}})
	var record tree.Record
	for i, edit := range []func() (tree.Change, error){
		func() (tree.Change, error) { return doc.Replace(tree.MustParse("/args/1"), "--port=81") },
		func() (tree.Change, error) { return doc.Add(tree.MustParse("/args/0"), "serve") },
		func() (tree.Change, error) { return doc.Replace(tree.MustParse("/args/2"), "--port=82") },
		func() (tree.Change, error) { return doc.Remove(tree.MustParse("/args/1")) },
	} {
		c, err := edit()
		if err != nil {
			fmt.Println(err)
			return
		}
		c.By = &tree.Author{Policy: tree.Policy{Kind: "OverridePolicy", Name: "web"}, Overrider: "jsonpatch", Item: i}
		record.Add(c)
	}

	changes := record.Changes()
	thread := tree.Trace(changes, "/args/1", len(changes))
	fmt.Println(text(doc.Root()))
	fmt.Println(thread.Last, "was", thread.First, "and is by", thread.Author())
	for i, place := range thread.Touches() {
		fmt.Println(i, changes[i].Op, "when it was", place)
	}
	// Output:
	// {"args":["serve","--port=82"]}
	// /args/1 was /args/1 and is by OverridePolicy web rule 0 jsonpatch[2]
	// 2 replace when it was /args/2
	// 0 replace when it was /args/1
}

// A pointer names a place; ~1 and ~0 stand for / and ~ in a key.
func ExampleParse() {
	p, err := tree.Parse("/metadata/annotations/example.com~1image")
	fmt.Println(p.Keys(), err)
	fmt.Println(p.Member("a/b~c").At(0))

	_, err = tree.Parse("metadata/name")
	fmt.Println(err)
	// Output:
	// [metadata annotations example.com/image] <nil>
	// /metadata/annotations/example.com~1image/a~1b~0c/0
	// invalid JSON pointer "metadata/name": it must begin with a slash
}

func text(v any) string {
	b, err := json.Marshal(v)
	if err != nil {
		return err.Error()
	}
	return string(b)
}
