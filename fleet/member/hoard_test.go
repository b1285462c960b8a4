package member

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"net/http"
	"runtime"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	apiruntime "k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	corev1alpha1 "refract.dev/api/core/v1alpha1"
	refractv1alpha1 "refract.dev/api/refract/v1alpha1"
	"refract.dev/internal/poll"
)

// hoarder is an API server with any number of objects.
type hoarder struct {
	page  func(n int) []metav1.PartialObjectMetadata // The n-th page of every list; nil after the last page.
	types []string                                   // Of the group example.com.
}

func (s *hoarder) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	const group = "example.com"
	q := r.URL.Query()
	switch {
	case r.URL.Path == "/api":
		answer(w, http.StatusOK, metav1.APIVersions{})
	case r.URL.Path == "/apis":
		v := metav1.GroupVersionForDiscovery{GroupVersion: group + "/v1", Version: "v1"}
		answer(w, http.StatusOK, metav1.APIGroupList{Groups: []metav1.APIGroup{{Name: group, Versions: []metav1.GroupVersionForDiscovery{v}, PreferredVersion: v}}})
	case r.URL.Path == "/apis/"+group+"/v1":
		list := metav1.APIResourceList{GroupVersion: group + "/v1"}
		for _, name := range s.types {
			list.APIResources = append(list.APIResources, metav1.APIResource{Name: name, Kind: name, Namespaced: true, Verbs: []string{"list", "watch", "patch", "delete"}})
		}
		answer(w, http.StatusOK, list)
	case q.Get("sendInitialEvents") != "": // Like an API server without this feature: a list follows.
		answer(w, http.StatusUnprocessableEntity, metav1.Status{Status: "Failure", Code: http.StatusUnprocessableEntity, Reason: metav1.StatusReasonInvalid})
	case q.Get("watch") != "":
		asObject(w)
		w.(http.Flusher).Flush()
		<-r.Context().Done()
	default:
		n := 0
		_, _ = fmt.Sscan(q.Get("continue"), &n) // The first page has no token.
		list := metav1.PartialObjectMetadataList{ListMeta: metav1.ListMeta{ResourceVersion: "100"}, Items: s.page(n)}
		if s.page(n+1) != nil {
			list.Continue = fmt.Sprint(n + 1)
		}
		answer(w, http.StatusOK, list)
	}
}

// excessive returns an error unless err is a [LimitError] about this quantity.
func excessive(err error, what string) error {
	var limit *LimitError
	if !errors.As(err, &limit) || limit.What != what {
		return fmt.Errorf("want an error about %s, got %v", what, err) //nolint:errorlint // There may be none.
	}
	return nil
}

// TestNamespacesAreBounded: for any answer of a member, the number of namespaces is bounded and invalid names are
// skipped.
func TestNamespacesAreBounded(t *testing.T) {
	for name, tc := range map[string]struct {
		reason   string
		pages    int
		nameless bool
		seen     int
		fails    bool
	}{
		"AtTheBound": {"The maximum number of namespaces is allowed.", mostNamespaces / namespacesListed, false, mostNamespaces, false},
		"Above":      {"The list is endless, and each name is unique.", 2 * mostNamespaces / namespacesListed, false, mostNamespaces, true},
		"NoNames":    {"Invalid names of namespaces are skipped.", 2, true, 0, false},
	} {
		t.Run(name, func(t *testing.T) {
			s := &hoarder{page: func(n int) []metav1.PartialObjectMetadata {
				if n >= tc.pages {
					return nil
				}
				page := make([]metav1.PartialObjectMetadata, namespacesListed)
				for i := range page {
					page[i].Name = fmt.Sprintf("n-%d-%d", n, i)
					if tc.nameless {
						page[i].Name = strings.Repeat("n", mostNamespace+1)
					}
				}
				return page
			}}
			m := serve(t, s.ServeHTTP)
			seen := 0
			err := m.Namespaces.Each(t.Context(), func(Namespace) { seen++ })
			if seen != tc.seen || (err != nil) != tc.fails {
				t.Errorf("%s\nwant %d, error %t, got %d, %v", tc.reason, tc.seen, tc.fails, seen, err)
			}
			if tc.fails {
				if err := excessive(err, "namespaces"); err != nil {
					t.Error(err)
				}
			}
		})
	}
}

// hoarded is a copy with unique marks.
func hoarded(n, size int) metav1.PartialObjectMetadata {
	mark := func(of string) string {
		s := fmt.Sprintf("%s-%d-", of, n)
		return s + strings.Repeat("x", max(0, size-len(s)))
	}
	return metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{
		Namespace: "d", Name: fmt.Sprintf("copy-%d", n), UID: types.UID(mark("uid")), ResourceVersion: "5",
		Annotations: map[string]string{
			refractv1alpha1.SourceAnnotation: mark("source"), refractv1alpha1.NamespaceAnnotation: mark("hub"),
			refractv1alpha1.AppliedAnnotation: mark("hash"), refractv1alpha1.OrphanAnnotation: mark("orphan"),
		},
	}}
}

// heap returns the memory in use.
func heap() uint64 {
	for range 3 { // The second run frees unused strings, and the third one runs their cleanups.
		runtime.GC()
	}
	var s runtime.MemStats
	runtime.ReadMemStats(&s)
	return s.HeapAlloc
}

// TestHoardIsBounded: the memory of a member is bounded even if its copies have unique marks of the maximum length. Its
// copies are then unknown, a condition reports this, and the copies are listed again later.
func TestHoardIsBounded(t *testing.T) {
	const (
		room  = 8 << 20
		pages = 4 * room / (5 * mostMark) / pageSize
	)
	var had atomic.Int64
	s := &hoarder{page: func(n int) []metav1.PartialObjectMetadata {
		if n >= pages {
			return nil
		}
		had.Store(int64(n))
		page := make([]metav1.PartialObjectMetadata, pageSize)
		for i := range page {
			page[i] = hoarded(n*pageSize+i, mostMark)
		}
		return page
	}}
	m := serve(t, s.ServeHTTP)
	m.api.limits.account.kept = mostKept - room // For copies of other types.
	before := heap()
	m.Copies.Watch(configMaps)
	resource := configMaps.GroupResource()
	poll.Until(t, "its copies exceed the bound", func() bool {
		return excessive(m.Copies.ListError(resource), "bytes of known copies") == nil
	})
	if _, found := m.Copies.Get(Key{resource, types.NamespacedName{Namespace: "d", Name: "copy-1"}}); found != Unlisted || m.Copies.Count() != 0 || m.Copies.complete() {
		t.Errorf("want the copies unknown, got %d, %d", found, m.Copies.Count())
	}
	if said := m.api.limits.excess.describe(); !strings.Contains(said, "more than 134217728 bytes of known copies") {
		t.Errorf("want the member to report the bound, got %q", said)
	}
	m.api.limits.account.mu.Lock()
	if kept := m.api.limits.account.kept; kept != mostKept-room || m.api.limits.account.copies != 0 {
		t.Errorf("want all reserved room released, got %d bytes, %d copies", kept, m.api.limits.account.copies)
	}
	m.api.limits.account.mu.Unlock()
	if grown := int64(heap()) - int64(before); grown > room/2 {
		t.Errorf("want the memory released, got %d MiB more", grown>>20)
	}
	if had.Load() >= pages-1 {
		t.Errorf("want the list ended at the bound, got %d pages", had.Load())
	}
}

// TestRoomForCopies: copies are kept up to the bound, and removed copies make room for others.
func TestRoomForCopies(t *testing.T) {
	named := func(name string) *metav1.PartialObjectMetadata {
		m := seen(t, firstUID, "10", "h1", applied)
		m.Name = name
		return m
	}
	key := func(name string) types.NamespacedName { return types.NamespacedName{Namespace: "d", Name: name} }
	for name, tc := range map[string]struct {
		reason        string
		copies, bytes int // The remaining room.
		fits          int // How many copies fit.
		what          string
	}{
		"Copies": {"The copies of all types are counted.", 2, 10_000, 2, "copies"},
		"Bytes":  {"The bytes of all copies are counted.", 100, 1600, 2, "bytes of known copies"},
	} {
		t.Run(name, func(t *testing.T) {
			var got told
			c := got.copies(configMaps)
			_ = c.Replace([]any{named("a")}, "10")
			c.decode.account.copies = mostCopies - tc.copies
			c.decode.account.kept = mostKept - tc.bytes
			for i := range tc.fits {
				_ = c.Add(named(fmt.Sprint("b", i)))
			}
			if _, found := c.look(key("b0")); found != Present || c.len() != 1+tc.fits {
				t.Fatalf("%s\nwant %d copies, got %d", tc.reason, 1+tc.fits, c.len())
			}
			_ = c.Delete(named("b0"))
			_ = c.Add(named("c"))
			if _, found := c.look(key("c")); found != Present || c.len() != 1+tc.fits {
				t.Fatalf("%s\nafter a removal: want room for another copy, got %d", tc.reason, c.len())
			}
			ended := false
			if err := c.beginWatch(func() { ended = true }, nil); err != nil {
				t.Fatal(err)
			}
			_ = c.Add(named("d"))
			if _, found := c.look(key("c")); found != Unlisted || c.len() != 0 || !ended {
				t.Errorf("%s\nabove the bound: want no copies kept, and the watch ended, got %d, %t", tc.reason, c.len(), ended)
			}
			if err := excessive(c.listError(), tc.what); err != nil {
				t.Errorf("%s\n%v", tc.reason, err)
			}
			_ = c.Add(named("e"))
			if err := excessive(c.beginList(t.Context()), tc.what); err != nil || c.len() != 0 {
				t.Errorf("%s\nwant no list during the rest: got %d, %v", tc.reason, c.len(), err)
			}
			c.halted.rest = time.Now()
			if err := c.beginList(t.Context()); err != nil {
				t.Fatal(err)
			}
			_ = c.Replace([]any{named("a")}, "11")
			if _, found := c.look(key("a")); found != Present || c.len() != 1 {
				t.Errorf("%s\nafter the rest: want the copies known, got %d", tc.reason, c.len())
			}
		})
	}
}

// TestRoomIsGivenBack: removed copies, and copies of an ended watch, take no room.
func TestRoomIsGivenBack(t *testing.T) {
	var got told
	c := got.copies(configMaps)
	add := func(name, version, managers string) {
		m := seen(t, firstUID, version, "h1", managers)
		m.Name = name
		_ = c.Add(m)
	}
	_ = c.Replace(nil, "1")
	ownerships.forget(c.decode.account)
	add("a", "10", applied)
	add("a", "11", scaled) // The record keeps the name of the manager that has changed the copy.
	add("b", "12", applied)
	c.remember(webName, copyOf(seen(t, secondUID, "13", "h2", applied), configMaps.GroupResource(), c.decode.account), true)
	long := hoarded(1, mostMark)
	_ = c.Add(&long)
	_ = c.Delete(&long)
	if c.decode.account.copies != 3 || c.conflictingManager(types.NamespacedName{Namespace: "d", Name: "a"}) == "" || c.records.bytes < 3*recordBytes {
		t.Errorf("want room reserved for three copies, got %d, with %d bytes", c.decode.account.copies, c.records.bytes)
	}
	_ = c.Replace(nil, "20")
	if c.decode.account.copies != 0 || c.records.bytes != 0 || len(c.records.conflictingManagers) != 0 {
		t.Errorf("want no room reserved, got %d copies, %d bytes", c.decode.account.copies, c.records.bytes)
	}
	add("a", "30", applied)
	c.end()
	add("b", "31", applied)
	if c.decode.account.copies != 0 || c.records.bytes != 0 {
		t.Errorf("want no room reserved after the end, got %d copies, %d bytes", c.decode.account.copies, c.records.bytes)
	}
}

// TestStreamedHoardEnds: a watch that begins with a list keeps nothing except the copies, and ends if there are too
// many copies.
func TestStreamedHoardEnds(t *testing.T) {
	var got told
	for name, tc := range map[string]struct {
		reason string
		show   func(*metav1.PartialObjectMetadata)
		room   int
		what   string
	}{
		"NoRoom": {"There is no room.", func(*metav1.PartialObjectMetadata) {}, 0, "copies"},
		"Name":   {"The length of a name is checked before the object is kept.", func(m *metav1.PartialObjectMetadata) { m.Name = strings.Repeat("n", mostName+1) }, 10, "bytes of a name"},
	} {
		t.Run(name, func(t *testing.T) {
			c := got.copies(configMaps)
			c.decode.account.copies = mostCopies - tc.room
			ended := false
			if err := errors.Join(c.beginList(t.Context()), c.beginWatch(func() { ended = true }, nil)); err != nil {
				t.Fatal(err)
			}
			m := seen(t, firstUID, "10", "h1", applied)
			tc.show(m)
			kept, err := c.Transformer()(m)
			if kept != (shown{}) || err != nil || !ended || c.len() != 0 {
				t.Errorf("%s\nwant the watch ended and no copies kept, got %v, %v, %t", tc.reason, kept, err, ended)
			}
			if err := excessive(c.listError(), tc.what); err != nil {
				t.Errorf("%s\n%v", tc.reason, err)
			}
		})
	}
}

// TestStreamOfOldState: after a restore of etcd from a backup, the listed objects seem old until the end of the list.
// Then the type is listed again.
func TestStreamOfOldState(t *testing.T) {
	var got told
	c := got.copies(configMaps)
	_ = c.Replace([]any{seen(t, firstUID, "50", "h1", applied)}, "60")
	_ = c.beginList(t.Context())
	_, _ = c.Transformer()(seen(t, firstUID, "5", "h0", applied))
	if err := c.Replace([]any{shown{}}, "7"); !errors.Is(err, errSetBack) {
		t.Errorf("want errSetBack, so that the type is listed again, got %v", err)
	}
	_ = c.beginList(t.Context())
	_, _ = c.Transformer()(seen(t, firstUID, "5", "h0", applied))
	if err := c.Replace([]any{shown{}}, "7"); err != nil {
		t.Error(err)
	}
	if item, _ := c.get(webName); item.version != 5 || item.Hash != "h0" {
		t.Errorf("want the copy as on the API server, got %+v", item)
	}
}

// TestRaisedRevision: an API server whose etcd was restored from a snapshot with a raised revision shows older versions
// in a list that is newer than all known versions. These versions are the current ones. By contrast, a list that is
// older than the answer to a write is only late.
func TestRaisedRevision(t *testing.T) {
	lists := map[string]func(c copies, e *metav1.PartialObjectMetadata, version string) error{
		"Streamed": func(c copies, e *metav1.PartialObjectMetadata, version string) error {
			_ = c.beginList(t.Context())
			_, _ = c.Transformer()(e)
			return c.Replace([]any{shown{}}, version)
		},
		"Pages": func(c copies, e *metav1.PartialObjectMetadata, version string) error {
			_ = c.beginList(t.Context())
			return errors.Join(c.onPage(t.Context(), []*copyEvent{c.event(e)}, number(version)), c.Replace(nil, version))
		},
	}
	for name, list := range lists {
		t.Run(name, func(t *testing.T) {
			var got told
			c := got.copies(configMaps)
			_ = c.Replace([]any{seen(t, firstUID, "5", "h0", applied)}, "60")
			c.remember(webName, Copy{UID: firstUID, Hash: "h1", version: 70}, true)
			before := seen(t, firstUID, "5", "h0", applied)
			if err := list(c, before, "69"); err != nil {
				t.Errorf("a list from before the write: want no error, got %v", err)
			}
			if item, _ := c.get(webName); item.version != 70 || item.Hash != "h1" {
				t.Errorf("want the written copy, got %+v", item)
			}
			_ = c.beginList(t.Context())
			_ = c.onListed([]*copyEvent{c.event(before), c.event(seen(t, firstUID, "70", "h1", applied))})
			if err := c.Replace(nil, "71"); err != nil {
				t.Errorf("a list that also shows the written version: want no error, got %v", err)
			}
			if err := list(c, before, "1000000000"); !errors.Is(err, errSetBack) {
				t.Errorf("a newer list without the written version: want errSetBack, so that the type is listed again, got %v", err)
			}
			if err := list(c, before, "1000000001"); err != nil {
				t.Error(err)
			}
			if item, _ := c.get(webName); item.version != 5 || item.Hash != "h0" {
				t.Errorf("want the copy as on the API server, got %+v", item)
			}
		})
	}
}

// TestListThatFails: the differences that an interrupted list has found are reported after the next list.
func TestListThatFails(t *testing.T) {
	var got told
	c := got.copies(configMaps)
	broken := errors.New("broken")
	answers := []func() (*metav1.PartialObjectMetadataList, error){
		func() (*metav1.PartialObjectMetadataList, error) { return listing("more", "a"), nil },
		func() (*metav1.PartialObjectMetadataList, error) { return nil, broken },
		func() (*metav1.PartialObjectMetadataList, error) { return listing("more", "a"), nil },
		func() (*metav1.PartialObjectMetadataList, error) { return listing("", "b"), nil },
	}
	next := func(context.Context, metav1.ListOptions) (apiruntime.Object, error) {
		list, err := answers[0]()
		answers = answers[1:]
		return list, err
	}
	if _, err := c.list(t.Context(), next); !errors.Is(err, broken) || got != (told{}) {
		t.Errorf("want no report after half of a list, got %v, %+v", err, got)
	}
	list, err := c.list(t.Context(), next)
	if err != nil {
		t.Fatal(err)
	}
	_ = c.Replace(nil, list.ResourceVersion)
	if want := (told{changed: 2, readied: 2, listed: 1}); got != want || c.len() != 2 {
		t.Errorf("want %+v, got %+v and %d copies", want, got, c.len())
	}
}

// TestCountedIsTaken: the counted size of copies is at least their real size, and 100,000 copies that Refract wrote
// take less than half of the bound.
func TestCountedIsTaken(t *testing.T) {
	const n = 20_000
	for name, tc := range map[string]struct {
		reason string
		object func(i int) *metav1.PartialObjectMetadata
		most   int
	}{
		"Honest": {"Refract writes the copies.", func(i int) *metav1.PartialObjectMetadata { return written(i, managersOf(t, applied)) }, mostKept / 2 / 100_000},
		"Short":  {"The copies have unique short marks.", func(i int) *metav1.PartialObjectMetadata { m := hoarded(i, 0); return &m }, 2000},
		"Spread": {"Each copy has its own namespace.", func(i int) *metav1.PartialObjectMetadata {
			m := hoarded(i, 0)
			m.Namespace = m.Name
			return &m
		}, 2000},
		"Sets": {"Each copy has its own set of fields.", func(i int) *metav1.PartialObjectMetadata {
			m := hoarded(i, 0)
			m.ManagedFields = []metav1.ManagedFieldsEntry{{Manager: FieldManager, Operation: "Apply", FieldsV1: metav1.NewFieldsV1(setOf(fmt.Sprint("s", i), 3))}}
			return &m
		}, 2500},
	} {
		t.Run(name, func(t *testing.T) {
			before := heap()
			c := (&told{}).copies(configMaps)
			for i := range n {
				_ = c.Add(tc.object(i))
			}
			ownerships.forget(c.decode.account)
			taken := int(heap()-before) / n
			c.decode.account.mu.Lock()
			counted := c.decode.account.kept / n
			c.decode.account.mu.Unlock()
			t.Logf("a copy takes %d bytes, %d are counted", taken, counted)
			if taken > counted*11/10 || counted > tc.most {
				t.Errorf("%s\nwant at most %d bytes counted, and the real size not larger, got %d and %d", tc.reason, tc.most, counted, taken)
			}
			runtime.KeepAlive(c)
		})
	}
}

// TestStraysAreBounded: all types of the hub with copies are watched, and a bounded number of other types.
func TestStraysAreBounded(t *testing.T) {
	copied := metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{
		Namespace: "d", Name: "web", UID: firstUID, ResourceVersion: "7", Labels: map[string]string{corev1alpha1.ManagedLabel: "true"},
	}}
	for name, tc := range map[string]struct {
		reason      string
		hub, others int
		watched     int
		fails       bool
	}{
		"OfTheHub":   {"The number of types of the hub is not bounded.", mostStrays + 20, 0, mostStrays + 20, false},
		"AtTheBound": {"Copies of types that the hub no longer has are watched up to the bound.", 3, mostStrays, mostStrays + 3, false},
		"Above":      {"The member reports copies of too many other types; copies of the hub's types stay known.", 3, mostStrays + 1, mostStrays + 3, true},
	} {
		t.Run(name, func(t *testing.T) {
			s := &hoarder{page: func(n int) []metav1.PartialObjectMetadata {
				if n > 0 {
					return nil
				}
				return []metav1.PartialObjectMetadata{copied}
			}}
			for i := range tc.others {
				s.types = append(s.types, fmt.Sprintf("others%04d", i))
			}
			for i := range tc.hub {
				s.types = append(s.types, fmt.Sprintf("ours%04d", i))
			}
			m := serve(t, s.ServeHTTP)
			m.sweep.served = func(context.Context) (func(schema.GroupResource) (string, bool), error) {
				return func(r schema.GroupResource) (string, bool) { return "", strings.HasPrefix(r.Resource, "ours") }, nil
			}
			m.Copies.unwatched.askSweep()
			lookThrough(m)
			if got := len(m.Copies.watches.stores()); got != tc.watched || (m.Copies.unwatched.err != nil) != tc.fails {
				t.Errorf("%s\nwant %d types watched, error %t, got %d, %v", tc.reason, tc.watched, tc.fails, got, m.Copies.unwatched.err)
			}
			if tc.fails {
				if err := excessive(m.Copies.unwatched.err, "types of copies that the hub does not have"); err != nil {
					t.Error(err)
				}
			}
		})
	}
}

// TestVersionsAreBounded: the number of versions is bounded, because a member without aggregated discovery gets a
// request for each version.
func TestVersionsAreBounded(t *testing.T) {
	for name, n := range map[string]int{"AtTheBound": mostVersions, "Above": mostVersions + 1} {
		t.Run(name, func(t *testing.T) {
			m := serve(t, func(w http.ResponseWriter, r *http.Request) {
				switch r.URL.Path {
				case "/api":
					answer(w, http.StatusOK, metav1.APIVersions{})
				case "/apis":
					list := metav1.APIGroupList{Groups: []metav1.APIGroup{{Name: "g", Versions: make([]metav1.GroupVersionForDiscovery, n)}}}
					for i := range n {
						list.Groups[0].Versions[i] = metav1.GroupVersionForDiscovery{GroupVersion: fmt.Sprintf("g/v%d", i), Version: fmt.Sprintf("v%d", i)}
					}
					answer(w, http.StatusOK, list)
				default:
					t.Errorf("want no other request, got %s", r.URL.Path)
				}
			})
			if n > mostVersions {
				if _, _, err := m.api.discover(t.Context()); excessive(err, "versions of API groups") != nil {
					t.Errorf("want an error, got %v", err)
				}
				return
			}
			groups, _, _, err := (&paced{DiscoveryClient: m.api.discovery, excess: m.api.limits.excess}).GroupsAndMaybeResourcesWithContext(t.Context())
			if err != nil || len(groups.Groups[len(groups.Groups)-1].Versions) != n {
				t.Errorf("want all groups, got %v, %v", groups, err)
			}
		})
	}
}

// textOf returns JSON of this many bytes.
func textOf(bytes int) []byte { return []byte(`"` + strings.Repeat("x", bytes-2) + `"`) }

// readFrom makes a member answer with a body, and returns the result of reading it.
func readFrom(ctx context.Context, a *account, body []byte, query string) (*http.Response, error) {
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, "https://eu-1/x"+query, nil)
	if err != nil {
		return nil, err
	}
	resp, err := bounded{&canned{body: body}, limits{a, &excess{member: "eu-1", now: time.Now}}}.RoundTrip(r)
	if err != nil {
		return nil, err
	}
	_, err = readAll(resp)
	return resp, err
}

func readAll(resp *http.Response) (n int, err error) {
	p := make([]byte, 32<<10)
	for {
		m, err := resp.Body.Read(p)
		n += m
		if err != nil {
			if err.Error() == "EOF" {
				err = nil
			}
			return n, err
		}
	}
}

// TestLargeAnswersTakeTurns: the number of large answers of a member in use at the same time is bounded. Further large
// answers wait until one is released; small answers do not wait.
func TestLargeAnswersTakeTurns(t *testing.T) {
	a := newAccount()
	var ends []func()
	for i := range mostLarge {
		ctx, end := a.begin(t.Context())
		ends = append(ends, end)
		resp, err := readFrom(ctx, a, textOf(smallAnswer+1), "")
		if err != nil {
			t.Fatalf("large answer %d: %v", i+1, err)
		}
		resp.Body.Close()
		if _, err := readFrom(ctx, a, textOf(smallAnswer+1), ""); err != nil {
			t.Fatalf("another answer of the same exchange: %v", err)
		}
	}
	gone, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := readFrom(gone, a, textOf(smallAnswer), ""); err != nil {
		t.Errorf("a small answer: %v", err)
	}
	if _, err := readFrom(gone, a, textOf(smallAnswer+1), ""); !errors.Is(err, context.Canceled) {
		t.Errorf("one more large answer: want it to wait, got %v", err)
	}
	many := []byte("[" + strings.Repeat("1,", smallValues) + "1]")
	if _, err := readFrom(gone, a, many, ""); !errors.Is(err, context.Canceled) {
		t.Errorf("one more answer with many values: want it to wait, got %v", err)
	}
	waited := make(chan error)
	go func() {
		resp, err := readFrom(t.Context(), a, textOf(smallAnswer+1), "")
		if err == nil {
			err = resp.Body.Close()
		}
		waited <- err
	}()
	ends[0]()
	if err := <-waited; err != nil {
		t.Errorf("after the end of an exchange: want the next answer read, got %v", err)
	}
	ends[1]()
	if len(a.large) != 0 {
		t.Errorf("want no large exchange left, got %d", len(a.large))
	}
}

// TestAnswersThatBelongTogether: the answers of one exchange have together the bounds of one answer.
func TestAnswersThatBelongTogether(t *testing.T) {
	a := newAccount()
	ctx, end := a.begin(t.Context())
	defer end()
	if _, err := readFrom(ctx, a, textOf(mostAnswer/2), ""); err != nil {
		t.Fatal(err)
	}
	if _, err := readFrom(ctx, a, textOf(mostAnswer/2), ""); err != nil {
		t.Errorf("at the bound: %v", err)
	}
	if _, err := readFrom(ctx, a, textOf(10), ""); excessive(err, "bytes of an answer") != nil {
		t.Errorf("above the bound: got %v", err)
	}
}

// TestBuffersOfWatches: the memory that watches keep after large events is bounded, and is given back when they end.
func TestBuffersOfWatches(t *testing.T) {
	const size = mostBuffers / bufferFactor / 4
	event := []byte(`{"x":"` + strings.Repeat("y", size-8) + `"}`)
	a := newAccount()
	var watches []*http.Response
	for i := range 4 {
		resp, err := readFrom(t.Context(), a, event, "?watch=true")
		if err != nil {
			t.Fatalf("watch %d: %v", i+1, err)
		}
		watches = append(watches, resp)
	}
	if _, err := readFrom(t.Context(), a, event[:smallAnswer/2], "?watch=true"); err != nil {
		t.Errorf("a watch with small events: %v", err)
	}
	if _, err := readFrom(t.Context(), a, event, "?watch=true"); excessive(err, "bytes of large watch events") != nil {
		t.Errorf("above the bound: got %v", err)
	}
	for _, w := range watches {
		w.Body.Close()
	}
	if _, err := readFrom(t.Context(), a, event, "?watch=true"); err != nil {
		t.Errorf("after the end of the other watches: %v", err)
	}
	if len(a.large) > 1 {
		t.Errorf("want no large exchange for a watch without a current event, got %d", len(a.large))
	}
}

// TestPagesTakeTurns: the number of pages of a member that are requested at the same time is bounded.
func TestPagesTakeTurns(t *testing.T) {
	l := newLimits("eu-1")
	gone, cancel := context.WithCancel(t.Context())
	cancel()
	var ask func(n int) error
	ask = func(n int) error {
		ctx := t.Context()
		if n > mostPagesAtOnce {
			ctx = gone
		}
		_, err := l.pages(ctx, configMaps.GroupResource(), metav1.ListOptions{}, func(context.Context, metav1.ListOptions) (apiruntime.Object, error) {
			return listing("", "a"), nil
		}, func(apiruntime.Object) error {
			if n > mostPagesAtOnce {
				return errors.New("too many requests")
			}
			if err := ask(n + 1); n < mostPagesAtOnce || !errors.Is(err, context.Canceled) {
				return err
			}
			return nil
		})
		return err
	}
	if err := ask(1); err != nil || len(l.account.pages) != 0 {
		t.Errorf("want %d pages at a time, and one more to wait, got %v", mostPagesAtOnce, err)
	}
}

// TestOnlyJSONIsDecoded: other answers, such as protobuf, are rejected, because their memory is not known before they
// are decoded.
func TestOnlyJSONIsDecoded(t *testing.T) {
	list := metav1.PartialObjectMetadataList{Items: make([]metav1.PartialObjectMetadata, 1000)}
	raw, err := list.Marshal()
	if err != nil {
		t.Fatal(err)
	}
	unknown := apiruntime.Unknown{TypeMeta: apiruntime.TypeMeta{APIVersion: "meta.k8s.io/v1", Kind: "PartialObjectMetadataList"}, Raw: raw}
	raw, err = unknown.Marshal()
	if err != nil {
		t.Fatal(err)
	}
	yaml := []byte("apiVersion: meta.k8s.io/v1\nkind: PartialObjectMetadataList\nitems: [{}]\n")
	for kind, body := range map[string][]byte{"application/vnd.kubernetes.protobuf": append([]byte("k8s\x00"), raw...), "": append([]byte("k8s\x00"), raw...), "application/yaml": yaml} {
		m := serve(t, func(w http.ResponseWriter, _ *http.Request) {
			w.Header()["Content-Type"] = []string{kind}
			_, _ = w.Write(body)
		})
		if got, err := m.api.metadata.list(t.Context(), configMaps, "", metav1.ListOptions{}); err == nil {
			t.Errorf("%q: want an error, got %d objects", kind, len(got.Items))
		}
	}
}

// TestNobodyChoosesTypes: a member cannot choose the type of its answer. This holds for errors and for requests with a
// fixed type. A Pod of two bytes takes a thousand times that in memory.
func TestNobodyChoosesTypes(t *testing.T) {
	list := corev1.PodList{Items: make([]corev1.Pod, 100_000)}
	raw, err := list.Marshal()
	if err != nil {
		t.Fatal(err)
	}
	unknown := apiruntime.Unknown{TypeMeta: apiruntime.TypeMeta{APIVersion: "v1", Kind: "PodList"}, Raw: raw}
	if raw, err = unknown.Marshal(); err != nil {
		t.Fatal(err)
	}
	account := types.NamespacedName{Namespace: "d", Name: "refract"}
	for body, content := range map[string][]byte{
		"protobuf": append([]byte("k8s\x00"), raw...), "YAML": []byte("apiVersion: v1\nkind: PodList\nitems:\n" + strings.Repeat("- \n", 100_000)),
		"JSON": []byte(`{"apiVersion":"v1","kind":"Pod","spec":{"containers":[` + strings.Repeat("{},", 100_000) + `{}]}}`),
	} {
		for _, code := range []int{http.StatusOK, http.StatusInternalServerError} {
			m := serve(t, func(w http.ResponseWriter, _ *http.Request) {
				w.Header().Set("Content-Type", "application/json")
				w.WriteHeader(code)
				_, _ = w.Write(content)
			})
			for what, ask := range map[string]func(){
				"a probe": func() { _ = m.api.probe(t.Context()) },
				"a type":  func() { _, _ = m.Objects.Any(t.Context(), schema.GroupResource{Group: "g", Resource: "x"}) },
				"types":   func() { _, _, _ = m.api.discover(t.Context()) },
				"a token": func() { _ = (&Reconciler{}).renewToken(t.Context(), m, &lasting{account: account}, &corev1.Secret{}) },
			} {
				const most = 64 // For 1 MiB.
				if grown := least(ask); grown > most*max(uint64(len(content)), 1<<20) {
					t.Errorf("%s with code %d for %s of %d bytes took %d bytes", body, code, what, len(content), grown)
				}
			}
		}
	}
}

// least returns the number of bytes that a function allocates. It takes the minimum of three runs, because watches of
// earlier tests may still run.
func least(do func()) uint64 {
	few := uint64(math.MaxUint64)
	for range 3 {
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		do()
		runtime.ReadMemStats(&after)
		few = min(few, after.TotalAlloc-before.TotalAlloc)
	}
	return few
}

// TestErrorsAreBrief: the kept or logged part of an error is bounded, and has the necessary details.
func TestErrorsAreBrief(t *testing.T) {
	long := strings.Repeat("x", 1<<20)
	m := serve(t, func(w http.ResponseWriter, _ *http.Request) {
		s := metav1.Status{Status: metav1.StatusFailure, Code: http.StatusNotFound, Reason: metav1.StatusReasonNotFound, Message: long, Details: &metav1.StatusDetails{Kind: "namespaces", Name: long}}
		for range 1000 {
			s.Details.Causes = append(s.Details.Causes, metav1.StatusCause{Field: "metadata.uid"})
		}
		answer(w, http.StatusNotFound, s)
	})
	_, err := m.Objects.Read(t.Context(), configMaps, webName)
	raw, failed := json.Marshal(err)
	if failed != nil || len(raw) > 10_000 || !strings.Contains(string(raw), `"kind":"namespaces"`) || !strings.Contains(string(raw), "metadata.uid") {
		t.Errorf("want the name of the object in a short error: got %d bytes", len(raw))
	}
}

// TestHeadsAreBounded: the header of an answer is bounded, because no account counts it.
func TestHeadsAreBounded(t *testing.T) {
	for name, tc := range map[string]struct {
		size  int
		fails bool
	}{"AtTheBound": {mostHeader - 1024, false}, "Above": {mostHeader + 1024, true}} {
		t.Run(name, func(t *testing.T) {
			m := serve(t, func(w http.ResponseWriter, _ *http.Request) { w.Header().Set("X", strings.Repeat("x", tc.size)) })
			if err := m.api.probe(t.Context()); (err != nil) != tc.fails {
				t.Errorf("want an error: %t, got %v", tc.fails, err)
			}
		})
	}
}
