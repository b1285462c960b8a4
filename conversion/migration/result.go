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

// Outcome is the result of a migration as one word.
type Outcome string

// The outcomes.
const (
	Migrated     Outcome = "Migrated"     // All objects are stored in the version. status.storedVersions has only this version.
	WouldMigrate Outcome = "WouldMigrate" // A dry run found no object that cannot be migrated.
	Declined     Outcome = "Declined"     // The user declined, and nothing was written.
	Refused      Outcome = "Refused"      // Some objects cannot be read in the version. Nothing was written.
	Failed       Outcome = "Failed"       // Some objects could not be rewritten. status.storedVersions is unchanged.
)

// Result is the result of a migration. The command prints it with -o json.
type Result struct {
	APIVersion string  `json:"apiVersion"`
	Kind       string  `json:"kind"`
	Name       string  `json:"name"` // Of the CustomResourceDefinition.
	To         string  `json:"to"`
	DryRun     bool    `json:"dryRun,omitempty"`
	Outcome    Outcome `json:"outcome"`
	// ContinuedAfter is the last object that the interrupted run had visited; empty if no run was continued.
	ContinuedAfter string `json:"continuedAfter,omitempty"`
	// Objects is the number of objects. After the rewriting it is the sum of the next four fields.
	Objects int `json:"objects"`
	// Rewritten is the number of objects whose stored bytes were not those of the version.
	Rewritten int `json:"rewritten"`
	// Unchanged is the number of objects that were already stored in the version, either before the migration or after
	// a write by another client. A dry run cannot recognize such objects; there it is the number of objects that could
	// be rewritten.
	Unchanged int `json:"alreadyThere"`
	// Gone is the number of objects that were deleted before they were visited.
	Gone   int `json:"gone"`
	Failed int `json:"failed"`
	// Failures are the first hundred failed objects, in the order of their names.
	Failures []Failure `json:"failures"`
	// GaveUp is true if a pass ended early because too many objects failed one after the other.
	GaveUp bool `json:"gaveUp,omitempty"`
	// Passes is the number of passes over all objects.
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

// fail records a failed object.
func (r *Result) fail(object string, err error) {
	r.Failed++
	if len(r.Failures) >= mostNamed {
		return
	}
	f := Failure{Object: object, Message: err.Error()}
	at, _ := slices.BinarySearchFunc(r.Failures, f, func(a, b Failure) int { return strings.Compare(a.Object, b.Object) })
	r.Failures = slices.Insert(r.Failures, at, f)
}

// Well reports whether the outcome is a success. Declined by the user is a success as well.
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

// WriteText writes the result as text for users.
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
		fmt.Fprintf(b, "  %s is left unchanged: %s, storedVersions %s\n", r.Name, objects, strings.Join(r.StoredVersionsBefore, ", "))
	case Refused:
		atLeast := ""
		if r.Failed >= mostNamed { // The survey ends after this number of failures.
			atLeast = "at least "
		}
		fmt.Fprintf(b, "✗ %s cannot be migrated to %s: %s%s cannot be read in it; nothing was written\n",
			r.Name, r.To, atLeast, output.Count(r.Failed, "object", "objects"))
		object := "object"
		if r.Failed > 1 {
			object = "objects"
		}
		fmt.Fprintf(b, "  fix the conversion, or make the old version the storage version again to fix or delete the %s\n", object)
	case Failed:
		verb := "is not migrated"
		if r.DryRun {
			verb = "cannot be migrated"
		}
		fmt.Fprintf(b, "✗ %s %s to %s\n", r.Name, verb, r.To)
		if r.GaveUp {
			fmt.Fprintf(b, "  %d failed in a row, and the rest were not tried\n", mostInARow)
		}
		fmt.Fprintf(b, "  %s: %s\n", objects, counts)
		fmt.Fprintf(b, "  storedVersions stays: %s\n", strings.Join(r.StoredVersionsAfter, ", "))
	}
}
