package structural

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"math/rand/v2"
	"net/http"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/runtime"

	"refract.dev/conversion/structural"
	"refract.dev/conversion/structural/generate"
	"refract.dev/test/harness"
)

const (
	// group is the group of the generated definitions.
	group = "generated.example"
	// schemas is the number of compared schemas, objects the number of objects for each.
	schemas, objects = 170, 8
)

// source returns random numbers that depend only on a seed.
func source(seed uint64) *rand.PCG { return rand.NewPCG(seed, 6) }

// verdict is what structural predicts, or what the server returns, for the write of an object.
type verdict struct {
	// Code is the HTTP status; 200 also stands for 201.
	Code int
	// Causes are the causes of a rejection with status 422.
	Causes []string
	// Message is the message of a rejection with another status.
	Message string
	// Unknown are the fields that the warnings or errors name as unknown.
	Unknown []string
	// Object is the resulting object, without the fields that the server sets.
	Object map[string]any
}

// subject is a generated definition that the server serves.
type subject struct {
	crd        map[string]any
	definition *structural.Definition
	version    *structural.Version
	namespace  string
}

func newSubject(t *testing.T, crd map[string]any) *subject {
	t.Helper()
	d, err := structural.New(crd)
	if err != nil {
		t.Fatalf("%v\n%s", err, yamlOf(crd))
	}
	v, err := d.Version(d.Storage())
	if err != nil {
		t.Fatal(err)
	}
	s := &subject{crd: crd, definition: d, version: v}
	if d.Namespaced() {
		s.namespace = "default"
	}
	return s
}

// path returns the path of the objects, or of the object with a name.
func (s *subject) path(name string) string {
	out := "/apis/" + s.version.APIVersion()
	if s.namespace != "" {
		out += "/namespaces/" + s.namespace
	}
	out += "/" + s.definition.Plural()
	if name != "" {
		out += "/" + name
	}
	return out
}

const dryRun = "?dryRun=All&fieldValidation=Warn"

// ask returns the server's verdict.
func (s *subject) ask(ctx context.Context, t *testing.T, method, path string, obj map[string]any) verdict {
	t.Helper()
	a, err := shared.do(ctx, method, path, encode(t, obj))
	if err != nil {
		t.Fatal(err)
	}
	out := verdict{Code: a.code}
	for _, w := range a.warnings {
		if field, ok := strings.CutPrefix(w, `unknown field "`); ok {
			out.Unknown = append(out.Unknown, strings.TrimSuffix(field, `"`))
		}
	}
	slices.Sort(out.Unknown)
	if a.code/100 == 2 {
		out.Code = http.StatusOK
		if out.Object, err = a.object(); err != nil {
			t.Fatal(err)
		}
		out.Object = plain(t, out.Object)
		return out
	}
	status, err := a.status()
	if err != nil {
		t.Fatal(err)
	}
	if a.code != http.StatusUnprocessableEntity {
		out.Message = status.Message
		return out
	}
	for _, c := range status.Details.Causes {
		if c.Field == "<nil>" { // The server prints <nil> for an empty path.
			c.Field = ""
		}
		out.Causes = append(out.Causes, strings.Join([]string{string(c.Type), c.Field, c.Message}, " | "))
	}
	out.Causes = set(out.Causes)
	return out
}

// predictCreate returns the verdict of structural on a POST.
func (s *subject) predictCreate(t *testing.T, obj map[string]any) verdict {
	t.Helper()
	return s.predict(t, obj, func(obj map[string]any) []structural.Finding {
		if s.version.StatusSubresource() {
			delete(obj, "status")
		}
		return s.version.Validate(obj)
	})
}

// predictUpdate returns the verdict of structural on a PUT.
func (s *subject) predictUpdate(t *testing.T, obj, old map[string]any) verdict {
	t.Helper()
	return s.predict(t, obj, func(obj map[string]any) []structural.Finding {
		if s.version.StatusSubresource() {
			delete(obj, "status")
			if status, ok := old["status"]; ok {
				obj["status"] = status
			}
		}
		return s.version.ValidateUpdate(obj, old)
	})
}

func (s *subject) predict(t *testing.T, obj map[string]any, validate func(map[string]any) []structural.Finding) verdict {
	t.Helper()
	decoded, err := s.version.Decode(decode(t, encode(t, obj)))
	if err != nil {
		// The beginning of the message differs: structural names the field, the server names the object.
		_, why, _ := strings.Cut(err.Error(), ": ")
		kind := s.definition.Kind()
		return verdict{Code: http.StatusBadRequest, Message: fmt.Sprintf("%s in version %q cannot be handled as a %s: %s", kind, s.version.Name(), kind, why)}
	}
	out := verdict{Code: http.StatusOK, Unknown: decoded.Unknown}
	if metadata, ok := decoded.Object["metadata"].(map[string]any); ok { // The server takes the namespace from the request.
		if delete(metadata, "namespace"); s.namespace != "" {
			metadata["namespace"] = s.namespace
		}
	}
	findings := validate(decoded.Object)
	if len(findings) == 0 {
		out.Object = plain(t, decoded.Object)
		return out
	}
	out.Code = http.StatusUnprocessableEntity
	for _, f := range findings {
		out.Causes = append(out.Causes, strings.Join([]string{f.Rule, f.Path, f.Message}, " | "))
	}
	out.Causes = set(out.Causes)
	return out
}

func set(texts []string) []string { return slices.Compact(slices.Sorted(slices.Values(texts))) }

// plain returns an object in the form that the server writes, for example 1 for 1.0, and without the fields that the
// server sets.
func plain(t *testing.T, obj map[string]any) map[string]any {
	t.Helper()
	raw, err := json.Marshal(obj)
	if err != nil {
		t.Fatal(err)
	}
	out := decode(t, raw)
	metadata, _ := out["metadata"].(map[string]any)
	for _, key := range []string{
		"uid", "resourceVersion", "generation", "creationTimestamp", "deletionTimestamp", "deletionGracePeriodSeconds",
		"managedFields", "selfLink",
	} {
		delete(metadata, key)
	}
	return out
}

// compared returns both verdicts and their difference, or "". If an object has several decoding errors, the server
// reports a random one, so the request is repeated.
func compared(judge func() (offline, live verdict)) (offline, live verdict, difference string) {
	for range 20 {
		offline, live = judge()
		if difference = cmp.Diff(offline, live); difference == "" || offline.Code != http.StatusBadRequest || live.Code != http.StatusBadRequest {
			break
		}
	}
	return offline, live, difference
}

// comparison counts the results of a comparison. Its methods may be called concurrently.
type comparison struct {
	pairs, accepted, refused, unreadable, unknown, changed atomic.Int64

	mu    sync.Mutex
	wrong int
}

func (c *comparison) count(v verdict, obj map[string]any) {
	c.pairs.Add(1)
	switch v.Code {
	case http.StatusOK:
		c.accepted.Add(1)
		if !cmp.Equal(v.Object["spec"], obj["spec"]) {
			c.changed.Add(1)
		}
	case http.StatusBadRequest:
		c.unreadable.Add(1)
	default:
		c.refused.Add(1)
	}
	if len(v.Unknown) > 0 {
		c.unknown.Add(1)
	}
}

// report reports a difference, with the smallest object that shows it.
func (c *comparison) report(t *testing.T, s *subject, seed uint64, obj, old map[string]any, judge func(map[string]any) (offline, live verdict)) {
	t.Helper()
	c.mu.Lock()
	c.wrong++
	many := c.wrong > 5
	c.mu.Unlock()
	if many {
		t.Errorf("seed %d: another difference, not printed", seed)
		return
	}
	offline, live := judge(obj)
	smallest := generate.Shrink(obj, func(o map[string]any) bool {
		for _, given := range [][]string{{"apiVersion"}, {"kind"}, {"metadata", "name"}, {"metadata", "resourceVersion"}} {
			if at(o, given...) != at(obj, given...) {
				return false
			}
		}
		first, second, difference := compared(func() (verdict, verdict) { return judge(o) })
		return difference != "" && first.Code == offline.Code && second.Code == live.Code
	}, func() bool { return t.Context().Err() != nil })
	_, _, difference := compared(func() (verdict, verdict) { return judge(smallest) })
	before := ""
	if old != nil {
		before = "--- the object before\n" + yamlOf(plain(t, old))
	}
	t.Errorf("seed %d: structural and the server differ: -structural, +server:\n%s--- object\n%s%s--- definition\n%s",
		seed, difference, yamlOf(decode(t, encode(t, smallest))), before, yamlOf(s.crd))
}

// groupOf returns an API group for the generated definitions of a test. The group is unique, because earlier tests may
// have left definitions with the same names.
func groupOf(t *testing.T) string { t.Helper(); return harness.NameOf(t) + ".example" }

// each runs a subtest for every seed below n. Several run at a time, so that the server works while this process
// computes.
func each(t *testing.T, n uint64, do func(t *testing.T, seed uint64)) {
	t.Helper()
	t.Run("Seeds", func(t *testing.T) {
		for seed := range n {
			t.Run(fmt.Sprint(seed), func(t *testing.T) {
				t.Parallel()
				do(t, seed)
			})
		}
	})
}

// TestAgreesWithTheServer: structural and a server agree on the result of a write: the stored object, the unknown
// fields, and the reasons for a rejection.
func TestAgreesWithTheServer(t *testing.T) {
	t.Parallel()
	all, group := make([]*subject, schemas), groupOf(t)
	for seed := range all {
		name := fmt.Sprintf("things%d.%s", seed, group)
		all[seed] = newSubject(t, generate.CRD(source(uint64(seed)), name, generate.SchemaOptions{}))
	}
	for _, s := range all {
		shared.must(t, http.MethodPost, definitions, s.crd)
	}
	creates, updates := &comparison{}, &comparison{}
	each(t, schemas, func(t *testing.T, i uint64) { //nolint:thelper // This function is the test.
		shared.served(t, all[i].crd)
		src := source(i + 1_000_000)
		for n := range objects {
			o := generate.ObjectOptions{Namespace: all[i].namespace, Name: fmt.Sprintf("object-%d", n), Valid: n%8 == 7}
			if n%4 == 3 { // The name satisfies the schema.
				o.Name = ""
			}
			obj := generate.Object(src, all[i].version, o)
			if v := compareCreate(t, creates, all[i], i, obj); v.Code == http.StatusOK && o.Name != "" {
				compareUpdates(t, updates, all[i], i, obj, src)
			}
		}
	})
	for what, c := range map[string]*comparison{"creating": creates, "updating": updates} {
		t.Logf("%s: %d pairs, %d accepted (%d changed), %d refused, %d unreadable, %d with unknown fields",
			what, c.pairs.Load(), c.accepted.Load(), c.changed.Load(), c.refused.Load(), c.unreadable.Load(), c.unknown.Load())
		if c.pairs.Load() < 600 || c.accepted.Load() < 200 || c.refused.Load() < 100 || c.unreadable.Load() < 5 || c.unknown.Load() < 50 {
			t.Errorf("%s: too few objects of a kind were compared", what)
		}
	}
	if pairs := creates.pairs.Load(); pairs < 1000 {
		t.Errorf("%d pairs were compared, want 1000 or more", pairs)
	}
}

// compareCreate compares the verdicts on a POST, and returns the server's.
func compareCreate(t *testing.T, c *comparison, s *subject, seed uint64, obj map[string]any) verdict {
	t.Helper()
	judge := func(o map[string]any) (offline, live verdict) {
		return s.predictCreate(t, o), s.ask(t.Context(), t, http.MethodPost, s.path("")+dryRun, o)
	}
	_, live, difference := compared(func() (verdict, verdict) { return judge(obj) })
	c.count(live, obj)
	if difference != "" {
		c.report(t, s, seed, obj, nil, judge)
	}
	return live
}

// compareUpdates creates an object and compares the verdicts on two updates: to another object, and to the same object
// with some fields of the other object.
func compareUpdates(t *testing.T, c *comparison, s *subject, seed uint64, obj map[string]any, src *rand.PCG) {
	t.Helper()
	old := shared.must(t, http.MethodPost, s.path(""), obj)
	other := generate.Object(src, s.version, generate.ObjectOptions{Namespace: s.namespace})
	for _, obj := range []map[string]any{other, mixed(src, obj, other)} {
		compareUpdate(t, c, s, seed, obj, old)
	}
}

// mixed returns an object with some of the fields of another.
func mixed(src *rand.PCG, obj, other map[string]any) map[string]any {
	out := runtime.DeepCopyJSON(obj)
	for _, key := range slices.Sorted(maps.Keys(other)) {
		mine, ok := out[key].(map[string]any)
		theirs, also := other[key].(map[string]any)
		switch {
		case ok && also:
			for _, inner := range slices.Sorted(maps.Keys(theirs)) {
				if src.Uint64()%3 == 0 {
					mine[inner] = theirs[inner]
				}
			}
		case src.Uint64()%2 == 0:
			out[key] = other[key]
		}
	}
	return out
}

// compareUpdate compares the verdicts on a PUT, and returns the server's.
func compareUpdate(t *testing.T, c *comparison, s *subject, seed uint64, obj, old map[string]any) verdict {
	t.Helper()
	obj = runtime.DeepCopyJSON(obj)
	name := text(old, "metadata", "name")
	metadata, _ := obj["metadata"].(map[string]any)
	metadata["name"], metadata["resourceVersion"] = name, text(old, "metadata", "resourceVersion")
	if _, ok := metadata["uid"].(string); ok { // The UID of another object would cause a conflict.
		delete(metadata, "uid")
	}
	judge := func(o map[string]any) (offline, live verdict) {
		return s.predictUpdate(t, o, old), s.ask(t.Context(), t, http.MethodPut, s.path(name)+dryRun, o)
	}
	_, live, difference := compared(func() (verdict, verdict) { return judge(obj) })
	c.count(live, obj)
	if difference != "" {
		c.report(t, s, seed, obj, old, judge)
	}
	return live
}
