package raw_test

import (
	"fmt"

	"refract.dev/tree/raw"
)

// A document is read without decoding. The rest of it is skipped.
func ExampleMembers() {
	document := []byte(`{"kind": "Pod", "metadata": {"name": "web", "huge": 12345678901234567890}}`)
	err := raw.Members(document, func(key, value []byte) bool {
		fmt.Printf("%s: %s\n", key, value)
		return true
	})
	if err != nil {
		fmt.Println(err)
	}
	// Output:
	// kind: "Pod"
	// metadata: {"name": "web", "huge": 12345678901234567890}
}

// A scanner descends into selected values, in one pass over the document.
func ExampleScanner() {
	s := raw.New([]byte(`{"spec": {"nodeName": "n1", "containers": [{"name": "a", "image": "x"}, {"name": "b"}]}}`))
	s.Object(func(key []byte) {
		if string(key) != "spec" {
			return
		}
		s.Object(func(key []byte) {
			if string(key) != "containers" {
				return
			}
			s.Array(func(i int) {
				s.Object(func(key []byte) {
					if string(key) == "name" {
						fmt.Printf("container %d is %s\n", i, s.Text())
					}
				})
			})
		})
	})
	if err := s.End(); err != nil {
		fmt.Println(err)
	}
	// Output:
	// container 0 is a
	// container 1 is b
}
