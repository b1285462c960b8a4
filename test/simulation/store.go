package simulation

import (
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/apimachinery/pkg/watch"
)

// object is an object of a member. It is never modified: a change creates a new one.
type object struct {
	*content

	resource   *resource
	serial     uint64 // Unique on the member; the UID is derived from it.
	version    uint64
	generation int64
	created    int64 // Unix seconds, like the next two.
	written    int64
	deleted    int64 // 0 unless the deletion has begun.
	workloads  Workloads
}

// history is the maximum number of stored events of a member. A watch that needs an older event gets an error, and its
// client lists again.
const history = 8192

// event is a change of an object. before is nil for a creation, after is nil for a deletion.
type event struct {
	before, after *object
	version       uint64
}

// store contains the objects of one member.
type store struct {
	number  int // Number of the member.
	library *library

	mu      sync.Mutex
	version uint64 // Version of the newest event.
	serial  uint64
	objects map[place]*object
	events  []event       // Ordered by version.
	more    chan struct{} // Closed at the next event; nil without a waiting watch.
}

func newStore(number int, l *library) (*store, error) {
	s := &store{number: number, library: l, version: 100, objects: map[place]*object{}}
	for _, name := range []string{metav1.NamespaceDefault, metav1.NamespaceSystem, metav1.NamespacePublic} {
		if _, _, err := s.write(place{resource: namespaces, name: name}, written{
			by: manager{name: "kube-apiserver", operation: metav1.ManagedFieldsOperationUpdate}, body: []byte(`{"metadata":{}}`),
		}); err != nil {
			return nil, err
		}
	}
	return s, nil
}

// uid returns a UID that is unique among the objects of all members.
func (s *store) uid(o *object) types.UID {
	var b [16]byte
	binary.BigEndian.PutUint64(b[:8], uint64(s.number)<<16|0x4000)
	binary.BigEndian.PutUint64(b[8:], o.serial|1<<63)
	return types.UID(fmt.Sprintf("%x-%x-%x-%x-%x", b[:4], b[4:6], b[6:8], b[8:10], b[10:]))
}

// get returns the object at a place.
func (s *store) get(at place) (*object, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.find(at)
}

// find returns the object at a place. The caller must hold the lock.
func (s *store) find(at place) (*object, error) {
	if o := s.objects[at]; o != nil {
		return o, nil
	}
	return nil, apierrors.NewNotFound(at.GroupResource(), at.name)
}

// written is a write request.
type written struct {
	by   manager
	body []byte
	// create makes the write fail if the object exists, merge if it does not.
	create, merge bool
	// workloads is the state that a Deployment gets.
	workloads Workloads
}

// write applies, creates or patches an object. made is true if the object is new.
func (s *store) write(at place, w written) (o *object, made bool, err error) {
	if w.merge {
		o, err = s.patch(at, w)
		return o, false, err
	}
	c, want, err := s.library.find(at, w.by, w.body)
	if err != nil {
		return nil, false, apierrors.NewBadRequest(err.Error())
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	was := s.objects[at]
	switch {
	case was == nil && want.uid != "":
		return nil, false, conflict(at, fmt.Errorf("uid mismatch: the provided object specified uid %s, and no existing object was found", want.uid))
	case was == nil && at.namespaced && s.objects[place{resource: namespaces, name: at.namespace}] == nil:
		return nil, false, apierrors.NewNotFound(namespaces.GroupResource(), at.namespace)
	case was == nil:
		return s.put(at, nil, c, w.workloads), true, nil
	case w.create:
		return nil, false, apierrors.NewAlreadyExists(at.GroupResource(), at.name)
	case want.version != "" && want.version != fmt.Sprint(was.version):
		return nil, false, conflict(at, errModified)
	case want.uid != "" && want.uid != s.uid(was):
		return nil, false, refused(at, want.uid)
	case was.content == c:
		return was, false, nil
	}
	return s.put(at, was, c, w.workloads), false, nil
}

func (s *store) patch(at place, w written) (*object, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	was, err := s.find(at)
	if err != nil {
		return nil, err
	}
	c, err := s.library.merge(at, was.content, w.by, w.body)
	if err != nil {
		return nil, apierrors.NewBadRequest(err.Error())
	}
	return s.put(at, was, c, w.workloads), nil
}

// put stores an object with the content at a place. The caller must hold the lock.
func (s *store) put(at place, was *object, c *content, runs Workloads) *object {
	now := time.Now().Unix()
	o := &object{content: c, resource: at.resource, created: now, written: now, workloads: runs}
	if was == nil {
		s.serial++
		o.serial = s.serial
		if at.generation {
			o.generation = 1
		}
	} else {
		o.serial, o.generation, o.created, o.deleted = was.serial, was.generation, was.created, was.deleted
		if at.generation && was.state != c.state {
			o.generation++
		}
	}
	// The strings of the key come from the shared content, so that all members share one copy.
	s.objects[place{resource: at.resource, namespace: c.namespace, name: c.name}] = o
	s.record(was, o)
	if o.deleted != 0 && len(o.finalizers) == 0 {
		s.drop(at, o)
	}
	return o
}

func (s *store) drop(at place, was *object) {
	delete(s.objects, at)
	s.record(was, nil)
}

// record adds an event. The caller must hold the lock.
func (s *store) record(before, after *object) {
	s.version++
	if after != nil {
		after.version = s.version
	}
	if len(s.events) == history {
		s.events = slices.Clone(s.events[history/2:])
	}
	s.events = append(s.events, event{before: before, after: after, version: s.version})
	if s.more != nil {
		close(s.more)
		s.more = nil
	}
}

// delete begins the deletion of an object, and completes it if there are no finalizers. Deleting a namespace deletes
// its objects.
func (s *store) delete(at place, only types.UID) (*object, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	was, err := s.find(at)
	if err != nil {
		return nil, err
	}
	if is := s.uid(was); only != "" && only != is {
		return nil, apierrors.NewConflict(schema.GroupResource{Group: at.Group, Resource: at.kind}, at.name, fmt.Errorf(otherUID, only, is))
	}
	if len(was.finalizers) > 0 {
		if was.deleted != 0 {
			return was, nil
		}
		o := *was
		o.deleted = time.Now().Unix()
		s.objects[at] = &o
		s.record(was, &o)
		return &o, nil
	}
	s.drop(at, was)
	if at.resource == namespaces {
		for other, o := range s.objects {
			if other.namespace == at.name {
				s.drop(other, o)
			}
		}
	}
	return was, nil
}

// query selects objects of a type.
type query struct {
	*resource

	namespace string // Empty selects all.
	labels    labels.Selector
	name      string // Empty selects all.
}

func (q query) selects(o *object) bool {
	return o != nil && o.resource == q.resource && (q.namespace == "" || q.namespace == o.namespace) &&
		(q.name == "" || q.name == o.name) && q.labels.Matches(labels.Set(o.labels))
}

// list returns the objects sorted by namespace and name, and the version of the list.
func (s *store) list(q query) ([]*object, uint64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	var found []*object
	for at, o := range s.objects {
		if at.resource == q.resource && q.selects(o) {
			found = append(found, o)
		}
	}
	slices.SortFunc(found, func(a, b *object) int {
		if c := strings.Compare(a.namespace, b.namespace); c != 0 {
			return c
		}
		return strings.Compare(a.name, b.name)
	})
	return found, s.version
}

// change is a watch event.
type change struct {
	kind    watch.EventType
	object  *object
	version uint64
}

// since returns the changes after a version, the newest version that it has examined, and a channel that is closed at
// the next event.
func (s *store) since(q query, version uint64) (changes []change, newest uint64, more <-chan struct{}, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.events) > 0 && version+1 < s.events[0].version {
		return nil, 0, nil, apierrors.NewResourceExpired(fmt.Sprintf("too old resource version: %d (%d)", version, s.events[0].version))
	}
	at, _ := slices.BinarySearchFunc(s.events, version, func(e event, v uint64) int {
		if e.version <= v {
			return -1
		}
		return 1
	})
	for _, e := range s.events[at:] {
		was, is := q.selects(e.before), q.selects(e.after)
		switch {
		case is && was:
			changes = append(changes, change{watch.Modified, e.after, e.version})
		case is:
			changes = append(changes, change{watch.Added, e.after, e.version})
		case was:
			changes = append(changes, change{watch.Deleted, e.before, e.version})
		}
	}
	if s.more == nil {
		s.more = make(chan struct{})
	}
	return changes, max(version, s.version), s.more, nil
}

// count returns the number of objects of all types that match the selector.
func (s *store) count(selector labels.Selector) (n int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, o := range s.objects {
		if selector.Matches(labels.Set(o.labels)) {
			n++
		}
	}
	return n
}

func conflict(at place, err error) error {
	return apierrors.NewConflict(at.GroupResource(), at.name, err)
}

func refused(at place, uid types.UID) error {
	return apierrors.NewInvalid(at.GroupVersion().WithKind(at.kind).GroupKind(), at.name, field.ErrorList{
		field.Invalid(field.NewPath("metadata", "uid"), uid, "field is immutable"),
	})
}

// metadata returns the metadata like an API server.
func (s *store) metadata(o *object) metav1.ObjectMeta {
	m := metav1.ObjectMeta{
		Namespace: o.namespace, Name: o.name, UID: s.uid(o),
		ResourceVersion: fmt.Sprint(o.version), Generation: o.generation,
		CreationTimestamp: metav1.Unix(o.created, 0),
		Labels:            o.labels, Annotations: o.annotations, Finalizers: o.finalizers,
	}
	if o.deleted != 0 {
		at := metav1.Unix(o.deleted, 0)
		m.DeletionTimestamp, m.DeletionGracePeriodSeconds = &at, new(int64)
	}
	at := metav1.Unix(o.written, 0)
	for _, by := range o.managers {
		m.ManagedFields = append(m.ManagedFields, metav1.ManagedFieldsEntry{
			Manager: by.name, Operation: by.operation, APIVersion: o.resource.GroupVersion().String(), Time: &at,
			FieldsType: "FieldsV1", FieldsV1: by.encoded,
		})
	}
	return m
}

// otherUID is the error of a deletion if the object has another UID.
const otherUID = "the UID in the precondition (%s) does not match the UID in record (%s). The object might have been deleted and then recreated"

// errModified is the error of a write if the object has another resourceVersion.
var errModified = errors.New("the object has been modified; please apply your changes to the latest version and try again")
