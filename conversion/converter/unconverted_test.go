package converter

import (
	"fmt"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	refractv1alpha1 "refract.dev/api/refract/v1alpha1"
	"refract.dev/conversion/convert"
	"refract.dev/fleet/hub"
)

// sizes returns an engine for Things. Their size must be a number in v2.
func sizes(t *testing.T) *convert.Engine {
	t.Helper()
	number := func(dst, value []byte) ([]byte, error) {
		if value[0] == '"' {
			return dst, fmt.Errorf("%s is no size", value)
		}
		return append(dst, value...), nil
	}
	e, err := convert.New(convert.Resource{
		Group: "example.org", Kind: "Thing", Hub: "v2", OnError: convert.Keep,
		Spokes: []convert.Spoke{{Version: "v1", Conversions: []convert.Conversion{convert.RawField("size", "size", number, number)}}},
	})
	if err != nil {
		t.Fatal(err)
	}
	return e
}

// TestAnnotation checks that the API package and the conversion engine have the same name for the annotation.
func TestAnnotation(t *testing.T) {
	if convert.Unconverted != refractv1alpha1.UnconvertedAnnotation {
		t.Errorf("%s and %s are two names", convert.Unconverted, refractv1alpha1.UnconvertedAnnotation)
	}
}

// TestKeeper checks that the status lists objects that were read and not converted completely.
func TestKeeper(t *testing.T) {
	ctx := t.Context()
	scheme, err := hub.Scheme()
	if err != nil {
		t.Fatal(err)
	}
	p := &refractv1alpha1.ConversionPolicy{ObjectMeta: metav1.ObjectMeta{Name: "things", UID: "1"}}
	c := fake.NewClientBuilder().WithScheme(scheme).WithStatusSubresource(p).WithObjects(p).Build()
	k := newReporter(logr.Discard())
	now := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	k.now = func() time.Time { return now }
	answered, e := k.of(p), sizes(t)
	read := func(name, size string) {
		t.Helper()
		a, err := e.Review(fmt.Appendf(nil, `{"apiVersion":"apiextensions.k8s.io/v1","kind":"ConversionReview","request":{"uid":"u","desiredAPIVersion":"example.org/v2","objects":[`+
			`{"apiVersion":"example.org/v1","kind":"Thing","metadata":{"namespace":"ns","name":%q},"size":%s}]}}`, name, size))
		if err != nil {
			t.Fatal(err)
		}
		answered(a)
	}
	want := func(reason string, names ...string) {
		t.Helper()
		k.flush(ctx, c)
		is := &refractv1alpha1.ConversionPolicy{}
		if err := c.Get(ctx, client.ObjectKeyFromObject(p), is); err != nil {
			t.Fatal(err)
		}
		k.know(is)
		var got []string
		for _, o := range is.Status.Unconverted {
			got = append(got, fmt.Sprintf("%s/%s %s to %s at %s: %s", o.Namespace, o.Name, o.From, o.To, o.Read.UTC().Format("15:04"), o.Message))
		}
		if diff := cmp.Diff(names, got); diff != "" {
			t.Errorf("%s\n-want, +got:\n%s", reason, diff)
		}
	}

	read("good", "1")
	want("All of it was converted.")
	read("b", `"vast"`)
	read("a", `"huge"`)
	read("good", "2")
	a, b := `ns/a v1 to v2 at 00:00: size: "huge" is no size`, `ns/b v1 to v2 at 00:00: size: "vast" is no size`
	want("Two lack something.", a, b)
	now = now.Add(10 * time.Minute)
	read("a", `"huge"`)
	want("A time that is nearly the same is not written.", a, b)
	read("b", "3")
	want("It was mended.", a)
	now = now.Add(2 * time.Hour)
	read("a", `"enormous"`)
	a = `ns/a v1 to v2 at 02:10: size: "enormous" is no size`
	want("It lacks something else.", a)

	restarted := newReporter(logr.Discard())
	restarted.now, restarted.logs = k.now, k.logs
	is := &refractv1alpha1.ConversionPolicy{}
	if err := c.Get(ctx, client.ObjectKeyFromObject(p), is); err != nil {
		t.Fatal(err)
	}
	restarted.know(is)
	k, answered = restarted, restarted.of(p)
	read("good", "1")
	want("Another replica knows what the status says.", a)
	now = now.Add(forgotten + time.Minute)
	want("Nobody has read it for a day.")
	for i := range 30 {
		read(fmt.Sprintf("m%02d", i), `"x"`)
	}
	k.flush(ctx, c)
	if err := c.Get(ctx, client.ObjectKeyFromObject(p), is); err != nil || len(is.Status.Unconverted) != mostUnconverted {
		t.Errorf("%d are named, %v: want %d", len(is.Status.Unconverted), err, mostUnconverted)
	}
}
