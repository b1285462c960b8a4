package migration

import (
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strings"

	refractv1alpha1 "refract.dev/api/refract/v1alpha1"
	"refract.dev/internal/output"
)

// Outcome is what came of a migration.
type Outcome string

// The outcomes.
const (
	Migrated     Outcome = "Migrated"     // Everything is stored in the version, and the definition says so.
	WouldMigrate Outcome = "WouldMigrate" // A dry run found nothing against it.
	Declined     Outcome = "Declined"     // The answer was no, and nothing was written.
	Refused      Outcome = "Refused"      // Objects cannot be read in the version, and nothing was written.
	Failed       Outcome = "Failed"       // Objects could not be rewritten. The definition says what it said.
)

// Result is what came of a migration, and is printed by -o json.
type Result struct {
	APIVersion string  `json:"apiVersion"`
	Kind       string  `json:"kind"`
	Name       string  `json:"name"` // Of the CustomResourceDefinition.
	To         string  `json:"to"`
	DryRun     bool    `json:"dryRun,omitempty"`
	Outcome    Outcome `json:"outcome"`
	// ContinuedAfter is the object after which an interrupted run was continued.
	ContinuedAfter string `json:"continuedAfter,omitempty"`
	// Objects is how many were met: the sum of the next four, once objects are rewritten.
	Objects int `json:"objects"`
	// Rewritten were stored in another version, or otherwise not as they would be now.
	Rewritten int `json:"rewritten"`
	// Unchanged were stored as wanted already, by somebody else's write or from the
	// beginning. In a dry run nobody can tell, and it is all that could be rewritten.
	Unchanged int `json:"alreadyThere"`
	// Gone were deleted before it was their turn.
	Gone   int `json:"gone"`
	Failed int `json:"failed"`
	// Failures names those that failed, in order, and no more than a hundred.
	Failures []Failure `json:"failures"`
	// GaveUp is whether so many objects failed one after the other that the rest were not
	// tried.
	GaveUp bool `json:"gaveUp,omitempty"`
	// Passes is how often all objects were listed to be rewritten.
	Passes  int     `json:"passes"`
	Seconds float64 `json:"seconds"`

	StoredVersionsBefore []string `json:"storedVersionsBefore"`
	StoredVersionsAfter  []string `json:"storedVersionsAfter"`
}

// Failure is an object that could not be read or rewritten.
type Failure struct {
	Object  string `json:"object"` // NAMESPACE/NAME, or NAME.
	Message string `json:"message"`
}

func newResult(m *migration) *Result {
	stored := m.definition.crd.Status.StoredVersions
	return &Result{
		APIVersion: refractv1alpha1.GroupVersion.String(), Kind: "StorageMigration",
		Name: m.Name, To: m.To, DryRun: m.DryRun, Failures: []Failure{},
		StoredVersionsBefore: slices.Clone(stored), StoredVersionsAfter: slices.Clone(stored),
	}
}

// fail notes an object that failed.
func (r *Result) fail(object string, err error) {
	r.Failed++
	if len(r.Failures) >= mostNamed {
		return
	}
	f := Failure{Object: object, Message: err.Error()}
	at, _ := slices.BinarySearchFunc(r.Failures, f, func(a, b Failure) int { return strings.Compare(a.Object, b.Object) })
	r.Failures = slices.Insert(r.Failures, at, f)
}

// Well reports whether all is as was wanted.
func (r *Result) Well() bool {
	return r.Outcome == Migrated || r.Outcome == WouldMigrate || r.Outcome == Declined
}

// WriteJSON writes the result as JSON.
func WriteJSON(w io.Writer, r *Result) error {
	e := json.NewEncoder(w)
	e.SetEscapeHTML(false)
	e.SetIndent("", "  ")
	return e.Encode(r)
}

// WriteText writes the result for people.
func WriteText(w io.Writer, r *Result) error {
	var b strings.Builder
	r.write(&b)
	_, err := io.WriteString(w, b.String())
	return err
}

func (r *Result) write(b *strings.Builder) {
	objects := output.Count(r.Objects, "object", "objects")
	for _, f := range r.Failures {
		fmt.Fprintf(b, "✗ %s: %s\n", f.Object, f.Message)
	}
	if more := r.Failed - len(r.Failures); more > 0 {
		fmt.Fprintf(b, "✗ and %s\n", output.Count(more, "more object", "more objects"))
	}
	counts := fmt.Sprintf("%d rewritten, %d already there, %d gone, %d failed", r.Rewritten, r.Unchanged, r.Gone, r.Failed)
	switch r.Outcome {
	case Migrated:
		fmt.Fprintf(b, "✔ %s is migrated to %s after %.1f s\n", r.Name, r.To, r.Seconds)
		fmt.Fprintf(b, "  %s: %s\n", objects, counts)
		fmt.Fprintf(b, "  storedVersions: %s → %s\n", strings.Join(r.StoredVersionsBefore, ", "), strings.Join(r.StoredVersionsAfter, ", "))
	case WouldMigrate:
		fmt.Fprintf(b, "✔ %s can be migrated to %s: %s, and none would fail\n", r.Name, r.To, objects)
		fmt.Fprintf(b, "  storedVersions would be: %s → %s\n", strings.Join(r.StoredVersionsBefore, ", "), r.To)
	case Declined:
		fmt.Fprintf(b, "  %s is left as it is: %s, storedVersions %s\n", r.Name, objects, strings.Join(r.StoredVersionsBefore, ", "))
	case Refused:
		atLeast := ""
		if r.Failed >= mostNamed { // Then no more were looked for.
			atLeast = "at least "
		}
		fmt.Fprintf(b, "✗ %s cannot be migrated to %s: %s%s cannot be read in it; nothing was written\n",
			r.Name, r.To, atLeast, output.Count(r.Failed, "object", "objects"))
		object := "object"
		if r.Failed > 1 {
			object = "objects"
		}
		fmt.Fprintf(b, "  mend the conversion, or make the old version the storage version again to mend or delete the %s\n", object)
	case Failed:
		verb := "is not migrated"
		if r.DryRun {
			verb = "cannot be migrated"
		}
		fmt.Fprintf(b, "✗ %s %s to %s\n", r.Name, verb, r.To)
		if r.GaveUp {
			fmt.Fprintf(b, "  %d failed one after the other, and the rest were not tried\n", mostInARow)
		}
		fmt.Fprintf(b, "  %s: %s\n", objects, counts)
		fmt.Fprintf(b, "  storedVersions stays: %s\n", strings.Join(r.StoredVersionsAfter, ", "))
	}
}
