// Package pipeline simulates, step by step, how an API server processes a custom resource: from the create request of a
// client to the answer to another client's get request.
//
// The steps have the order of the API server. A request is decoded with the schema of its own version, and defaulted.
// Mutating webhooks change the object, and it is defaulted again. It is validated, and then validating webhooks allow
// or deny it. It is converted to the storage version, and stored. For a read, the object is decoded and defaulted with
// the schema of the storage version. It is then converted to the requested version. The schema of the requested version
// prunes the object, but adds no defaults.
//
// Source: apiserver/customresource_handler.go of k8s.io/apiextensions-apiserver.
package pipeline

import (
	"errors"
	"fmt"
	"maps"
	"slices"

	"k8s.io/apimachinery/pkg/runtime"

	"refract.dev/conversion/structural"
	"refract.dev/tree"
)

// Phases of a [Trace].
const (
	Write = "write" // From the request of a client to the stored object.
	Read  = "read"  // From the stored object to the answer to a client.
)

// Names of steps.
const (
	Decode   = "decode"   // Unknown fields, and nulls that the schema does not allow, are dropped.
	Default  = "default"  // The defaults of the version are set.
	Mutate   = "mutate"   // The mutating webhook changes the object.
	Prepare  = "prepare"  // Fields that a create cannot set are dropped.
	Validate = "validate" // The object is validated by the schema of the version.
	Admit    = "admit"    // The validating webhook allows or denies the object.
	Convert  = "convert"  // The object is converted to the version of the step.
	Prune    = "prune"    // Fields that the conversion returned and the version does not know are dropped.
	Store    = "store"    // The object in storage.
	Load     = "load"     // The stored object is decoded.
	Answer   = "answer"   // The client gets the object.
)

// Rules of findings that do not come from the validation of the API server.
const (
	RuleUnknown   = "UnknownField" // The version does not know a field, which is dropped.
	RuleNotServed = "NotServed"    // The version is not served.
	RuleMalformed = "Malformed"    // The object cannot be decoded.
)

// Step is one processing step of the object.
type Step struct {
	// Phase is [Write] or [Read].
	Phase string `json:"phase"`
	Name  string `json:"name"`
	// Version is the version with the schema or the hooks of the step.
	Version string `json:"version"`
	// Object is the object after the step. It must not be modified.
	Object map[string]any `json:"object"`
	// Changes are the changes by the step. Without changes the list is empty.
	Changes []tree.Change `json:"changes"`
	// Findings are the findings of the step. An error ends the request, and a warning does not.
	Findings []structural.Finding `json:"findings"`
	// NotDefaulted are defaults of the requested version that the object does not have after a read. It would have them
	// if it had been written in that version.
	NotDefaulted []tree.Change `json:"notDefaulted,omitempty"`
	// Note is additional information about the step; it may be empty.
	Note string `json:"note,omitempty"`
}

// Refused reports whether the step ended the request.
func (s *Step) Refused() bool {
	return slices.ContainsFunc(s.Findings, func(f structural.Finding) bool { return f.Severity == structural.Error })
}

// Trace is the record of the steps of a request.
type Trace struct {
	// Steps are in the order of their execution.
	Steps []Step `json:"steps"`
}

// Refused reports whether the last step ended the request.
func (t *Trace) Refused() bool { return len(t.Steps) > 0 && t.Steps[len(t.Steps)-1].Refused() }

// Object returns the object that the client gets; nil if the request was rejected. It must not be modified.
func (t *Trace) Object() map[string]any {
	if len(t.Steps) == 0 || t.Refused() {
		return nil
	}
	return t.Steps[len(t.Steps)-1].Object
}

// Hooks are the webhooks. Each gets a copy of the object and may modify it. If a hook rejects the object, it returns a
// [*RefusedError]. Any other error means that the webhook could not be called, and ends [Run].
type Hooks struct {
	// Mutate is the mutating webhook; nil for none.
	Mutate func(obj map[string]any) (map[string]any, error)
	// Admit is the validating webhook; nil for none.
	Admit func(obj map[string]any) error
	// Convert is the conversion webhook; nil for the strategy None, which changes only the apiVersion.
	Convert func(obj map[string]any, toAPIVersion string) (map[string]any, error)
}

// RefusedError is the error of a hook that rejects the object.
type RefusedError struct {
	// Rule is the rule of the finding, for example AdmissionDenied.
	Rule string
	// Message is the message to the client.
	Message string
}

func (r *RefusedError) Error() string { return r.Message }

// Run creates an object in its own version, and reads it in the version read. It ends after the first step that rejects
// the object. It does not modify the object.
//
// The error is for a request that cannot be simulated: the definition does not have the version of the object or the
// version read, or a webhook cannot be called. The trace then has the steps before the error. The object lacks the
// fields that an API server generates: uid, timestamps, generation, managed fields.
func Run(d *structural.Definition, obj map[string]any, read string, h Hooks) (*Trace, error) {
	trace := &Trace{Steps: []Step{}}
	request, err := d.VersionOf(obj)
	if err != nil {
		return trace, err
	}
	target, err := d.Version(read)
	if err != nil {
		return trace, err
	}
	storage, err := d.Version(d.Storage())
	if err != nil {
		return trace, err
	}
	r := &run{trace: trace, hooks: h, object: obj}
	err = r.write(request, storage)
	if err == nil {
		err = r.read(storage, target)
	}
	if errors.Is(err, errRefused) {
		return trace, nil
	}
	return trace, err
}

// errRefused ends a run. The last step has the reason.
var errRefused = errors.New("the request is refused")

// run is a request in progress.
type run struct {
	trace  *Trace
	hooks  Hooks
	phase  string
	object map[string]any // After the last step.
}

// write executes the steps from the request to the storage.
func (r *run) write(request, storage *structural.Version) error {
	r.phase = Write
	for _, do := range []func(*structural.Version) error{r.decode, r.setDefaults, r.mutate, r.prepare, r.validate, r.admit} {
		if err := do(request); err != nil {
			return err
		}
	}
	if request.Name() == storage.Name() {
		return r.add(Step{Name: Store, Version: storage.Name()})
	}
	if err := r.convert(storage); err != nil {
		return err
	}
	return r.add(r.unchecked(Store, storage))
}

// read executes the steps from the storage to the answer.
func (r *run) read(storage, target *structural.Version) error {
	r.phase = Read
	if !target.Served() {
		return r.add(Step{Name: Answer, Version: target.Name(), Findings: []structural.Finding{NotServed(target)}})
	}
	if err := r.prune(Load, storage); err != nil {
		return err
	}
	if err := r.setDefaults(storage); err != nil {
		return err
	}
	if target.Name() == storage.Name() {
		return r.add(Step{Name: Answer, Version: target.Name()})
	}
	if err := r.convert(target); err != nil {
		return err
	}
	last := r.unchecked(Answer, target)
	defaulted, err := target.Default(r.object)
	if err != nil {
		return fmt.Errorf("defaulting in %s: %w", target.Name(), err)
	}
	if last.NotDefaulted = defaulted.Changes; len(last.NotDefaulted) > 0 {
		last.Note = join(last.Note, fmt.Sprintf("only the stored version's defaults are applied on reads, not those of %s", target.Name()))
	}
	return r.add(last)
}

// join joins two notes. The first may be empty.
func join(a, b string) string {
	if a == "" {
		return b
	}
	return a + "; " + b
}

// add appends a step. If the step has no object, it does not change the object.
func (r *run) add(s Step) error {
	s.Phase = r.phase
	if s.Object == nil {
		s.Object = r.object
	}
	if s.Changes == nil {
		s.Changes = []tree.Change{}
	}
	if s.Findings == nil {
		s.Findings = []structural.Finding{}
	}
	r.object = s.Object
	r.trace.Steps = append(r.trace.Steps, s)
	if s.Refused() {
		return errRefused
	}
	return nil
}

// refuse appends a step for the error of a hook.
func (r *run) refuse(name string, v *structural.Version, err error) error {
	var refusal *RefusedError
	if !errors.As(err, &refusal) {
		return err
	}
	return r.add(Step{Name: name, Version: v.Name(), Findings: []structural.Finding{
		{Message: refusal.Message, Severity: structural.Error, Rule: refusal.Rule},
	}})
}

func (r *run) decode(v *structural.Version) error {
	if !v.Served() {
		return r.add(Step{Name: Decode, Version: v.Name(), Findings: []structural.Finding{NotServed(v)}})
	}
	return r.prune(Decode, v)
}

// NotServed returns the finding for an object of a version that is not served.
func NotServed(v *structural.Version) structural.Finding {
	return structural.Finding{
		Path: "apiVersion", Message: fmt.Sprintf("version %q is not served", v.Name()), Severity: structural.Error, Rule: RuleNotServed,
	}
}

// prune drops fields that the version does not know. If the fields come from a conversion, it adds a note, because an
// API server drops such fields without a warning.
func (r *run) prune(name string, v *structural.Version) error {
	result, err := v.Prune(r.object)
	if err != nil { // The API server answers with Bad Request.
		return r.add(Step{Name: name, Version: v.Name(), Findings: []structural.Finding{
			{Message: err.Error(), Severity: structural.Error, Rule: RuleMalformed},
		}})
	}
	note := ""
	if name == Prune && r.phase == Write && len(result.Changes) > 0 {
		note = "an API server drops this without a warning: it is not stored"
	}
	return r.add(Step{Name: name, Version: v.Name(), Object: result.Object, Changes: result.Changes, Findings: Unknown(result), Note: note})
}

// Unknown returns a warning for each dropped unknown field, with the message of the API server.
func Unknown(result *structural.Result) []structural.Finding {
	findings := make([]structural.Finding, len(result.Unknown))
	for i, path := range result.Unknown {
		findings[i] = structural.Finding{
			Path: path, Message: fmt.Sprintf("unknown field %q", path), Severity: structural.Warning, Rule: RuleUnknown,
		}
	}
	return findings
}

func (r *run) setDefaults(v *structural.Version) error {
	result, err := v.Default(r.object)
	if err != nil {
		return fmt.Errorf("defaulting in %s: %w", v.Name(), err)
	}
	return r.add(Step{Name: Default, Version: v.Name(), Object: result.Object, Changes: result.Changes})
}

// mutate calls the mutating webhook. The result is defaulted, but not pruned.
func (r *run) mutate(v *structural.Version) error {
	if r.hooks.Mutate == nil {
		return nil
	}
	after, err := r.hooks.Mutate(runtime.DeepCopyJSON(r.object))
	if err != nil {
		return r.refuse(Mutate, v, err)
	}
	changes := compare(r.object, after)
	if err := r.add(Step{Name: Mutate, Version: v.Name(), Object: after, Changes: changes}); err != nil || len(changes) == 0 {
		return err
	}
	return r.setDefaults(v)
}

// Prepared returns the part of an object that the API server validates and stores. This matters for versions with the
// status subresource: a create (old is nil) drops the status, and an update keeps the status of old. Both objects must
// have been decoded in this version. Prepared does not modify them; the result shares their values.
//
// Source: PrepareForCreate and PrepareForUpdate of the API server's customResourceStrategy.
func Prepared(v *structural.Version, obj, old map[string]any) map[string]any {
	_, has := obj["status"]
	status, had := old["status"]
	if !v.StatusSubresource() || !has && !had {
		return obj
	}
	prepared := maps.Clone(obj)
	delete(prepared, "status")
	if had {
		prepared["status"] = status
	}
	return prepared
}

// prepare drops the status if the version has the status subresource.
func (r *run) prepare(v *structural.Version) error {
	after := Prepared(v, r.object, nil)
	changes := compare(r.object, after)
	if len(changes) == 0 {
		return nil
	}
	return r.add(Step{
		Name: Prepare, Version: v.Name(), Object: after, Changes: changes,
		Note: "a create does not set the status, which has an endpoint of its own",
	})
}

func (r *run) validate(v *structural.Version) error {
	return r.add(Step{Name: Validate, Version: v.Name(), Findings: v.Validate(r.object)})
}

func (r *run) admit(v *structural.Version) error {
	if r.hooks.Admit == nil {
		return nil
	}
	if err := r.hooks.Admit(runtime.DeepCopyJSON(r.object)); err != nil {
		return r.refuse(Admit, v, err)
	}
	return r.add(Step{Name: Admit, Version: v.Name()})
}

// convert converts the object to a version, and prunes the result.
func (r *run) convert(to *structural.Version) error {
	after, note := runtime.DeepCopyJSON(r.object), ""
	if r.hooks.Convert == nil {
		after["apiVersion"] = to.APIVersion()
		note = "the strategy None rewrites only the apiVersion"
	} else {
		var err error
		if after, err = r.hooks.Convert(after, to.APIVersion()); err != nil {
			return r.refuse(Convert, to, err)
		}
	}
	if err := r.add(Step{Name: Convert, Version: to.Name(), Object: after, Changes: compare(r.object, after), Note: note}); err != nil {
		return err
	}
	return r.prune(Prune, to)
}

// unchecked returns a step in a version in which the API server does not validate the object. So errors of the
// validation become warnings.
func (r *run) unchecked(name string, v *structural.Version) Step {
	step := Step{Name: name, Version: v.Name(), Findings: v.Validate(r.object)}
	for i := range step.Findings {
		step.Findings[i].Severity = structural.Warning
	}
	if len(step.Findings) > 0 {
		step.Note = "an API server does not validate converted objects; an update in this version would be refused"
	}
	return step
}
