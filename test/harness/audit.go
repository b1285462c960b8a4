package harness

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"time"
)

// Write is one request that has changed a cluster, or was meant to.
type Write struct {
	Time      time.Time // When it arrived.
	Done      time.Time // When it was answered.
	Agent     string    // The user agent up to the first blank, such as refract/one.
	User      string
	Verb      string // create, update, patch, delete or deletecollection.
	Resource  string // The plural name of the type; with the subresource, if any, after a slash.
	Group     string
	Namespace string
	Name      string
	Code      int // HTTP.
}

func (w Write) String() string {
	return fmt.Sprintf("%s %s (%s): %s %s %s/%s: %d",
		w.Time.Format("15:04:05.000"), w.Agent, w.User, w.Verb, w.Resource, w.Namespace, w.Name, w.Code)
}

// Writes returns the writes of refract that a cluster's API server has recorded since
// the Env was opened, in the order of their arrival. Reviews of rights, which change
// nothing, are not among them.
func (e *Env) Writes(cluster string) ([]Write, error) {
	var out []Write
	err := e.audited(cluster, func(of *audited) {
		if w, ok := of.write(); ok {
			out = append(out, w)
		}
	})
	return byArrival(out), err
}

// failedOpen begins the key by which an API server says in a request's record that a webhook gave it no answer and that it went
// on without.
//
// Source: https://pkg.go.dev/k8s.io/apiserver/pkg/admission/plugin/webhook/mutating#pkg-constants
const failedOpen = "failed-open.mutation.webhook.admission.k8s.io/"

// uninjected ends the key by which Refract says so of a pod that waited for its turn for too long.
const uninjected = "/uninjected"

// Unanswered returns how many objects of a type have been created without what a webhook would have changed, as there was no
// time to look at them, since the Env was opened in namespaces whose names begin with the prefix.
func (e *Env) Unanswered(cluster, resource, prefix string) (n int, err error) {
	err = e.audited(cluster, func(of *audited) {
		if of.Verb != "create" || of.ObjectRef.Resource != resource || of.ObjectRef.Subresource != "" || !strings.HasPrefix(of.ObjectRef.Namespace, prefix) {
			return
		}
		for key := range of.Annotations {
			if strings.HasPrefix(key, failedOpen) || strings.HasSuffix(key, uninjected) {
				n++
				return
			}
		}
	})
	return n, err
}

// audited is what an API server has recorded of a request.
type audited struct {
	Verb      string `json:"verb"`
	UserAgent string `json:"userAgent"`
	User      struct {
		Username string `json:"username"`
	} `json:"user"`
	ObjectRef struct {
		Resource    string `json:"resource"`
		Subresource string `json:"subresource"`
		APIGroup    string `json:"apiGroup"`
		Namespace   string `json:"namespace"`
		Name        string `json:"name"`
	} `json:"objectRef"`
	ResponseStatus struct {
		Code int `json:"code"`
	} `json:"responseStatus"`
	RequestReceivedTimestamp time.Time         `json:"requestReceivedTimestamp"`
	StageTimestamp           time.Time         `json:"stageTimestamp"`
	Annotations              map[string]string `json:"annotations"`
}

// audited calls each with what a cluster's API server has recorded since the Env was opened, in the order in which it did.
func (e *Env) audited(cluster string, each func(*audited)) error {
	path, err := e.View.AuditLog(cluster)
	if err != nil {
		return err
	}
	file, err := os.Open(path)
	if err != nil {
		return err
	}
	defer func() { _ = file.Close() }() // It was only read from.
	lines := bufio.NewReader(file)
	for {
		line, err := lines.ReadBytes('\n')
		if err != nil { // A line without an end is still being written.
			return ignoreEOF(err)
		}
		of := &audited{}
		if err := json.Unmarshal(line, of); err != nil {
			return fmt.Errorf("reading %s: %w", path, err)
		}
		if of.RequestReceivedTimestamp.After(e.began) {
			each(of)
		}
	}
}

// write returns the request; ok is false if it is not what Writes is about.
func (a *audited) write() (w Write, ok bool) {
	agent, _, _ := strings.Cut(a.UserAgent, " ")
	if name, _, _ := strings.Cut(agent, "/"); name != "refract" || a.ObjectRef.APIGroup == "authorization.k8s.io" {
		return Write{}, false
	}
	resource := a.ObjectRef.Resource
	if a.ObjectRef.Subresource != "" {
		resource += "/" + a.ObjectRef.Subresource
	}
	return Write{
		Time: a.RequestReceivedTimestamp, Done: a.StageTimestamp, Agent: agent, User: a.User.Username, Verb: a.Verb,
		Resource: resource, Group: a.ObjectRef.APIGroup, Namespace: a.ObjectRef.Namespace, Name: a.ObjectRef.Name, Code: a.ResponseStatus.Code,
	}, true
}

func byArrival(all []Write) []Write {
	slices.SortStableFunc(all, func(a, b Write) int { return a.Time.Compare(b.Time) })
	return all
}

func ignoreEOF(err error) error {
	if errors.Is(err, io.EOF) {
		return nil
	}
	return err
}
