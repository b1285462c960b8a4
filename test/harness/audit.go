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

// Write is a request that changed a cluster, or tried to.
type Write struct {
	Time      time.Time // Arrival of the request.
	Done      time.Time // Time of the answer.
	Agent     string    // User agent up to the first blank, such as refract/one.
	User      string
	Verb      string // create, update, patch, delete or deletecollection.
	Resource  string // Plural name of the type, followed by a slash and the subresource, if any.
	Group     string
	Namespace string
	Name      string
	Code      int // HTTP status.
}

func (w Write) String() string {
	return fmt.Sprintf("%s %s (%s): %s %s %s/%s: %d",
		w.Time.Format("15:04:05.000"), w.Agent, w.User, w.Verb, w.Resource, w.Namespace, w.Name, w.Code)
}

// Writes returns the writes of Refract in the audit log of a cluster since the Env was opened, in the order of their
// arrival. It omits reviews of access rights, because these change nothing.
func (e *Env) Writes(cluster string) ([]Write, error) {
	var out []Write
	err := e.audited(cluster, func(of *audited) {
		if w, ok := of.write(); ok {
			out = append(out, w)
		}
	})
	return byArrival(out), err
}

// failedOpen is the prefix of an annotation in the audit log: a webhook did not answer, and the API server continued
// without it.
//
// Source: https://pkg.go.dev/k8s.io/apiserver/pkg/admission/plugin/webhook/mutating#pkg-constants
const failedOpen = "failed-open.mutation.webhook.admission.k8s.io/"

// uninjected is the suffix of the audit annotation that Refract sets if a pod has waited too long for the webhook.
const uninjected = "/uninjected"

// Unanswered returns the number of objects of a type that were created without the changes of a webhook, because the
// webhook did not process them in time. It counts objects that were created since the Env was opened, in namespaces
// whose names begin with the prefix.
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

// audited is an entry of an audit log.
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

// audited calls the function each with every entry of a cluster's audit log since the Env was opened, in the order of
// the log.
func (e *Env) audited(cluster string, each func(*audited)) error {
	path, err := e.View.AuditLog(cluster)
	if err != nil {
		return err
	}
	file, err := os.Open(path)
	if err != nil {
		return err
	}
	defer func() { _ = file.Close() }() // The file was only read.
	lines := bufio.NewReader(file)
	for {
		line, err := lines.ReadBytes('\n')
		if err != nil { // The API server is still writing the last line.
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

// write converts an entry for [Env.Writes]; ok is false for an entry that Writes omits.
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
