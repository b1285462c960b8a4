package playground

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
)

// storedPage is the number of keys in one response of etcd. It is small, because an object may have more than a
// megabyte in base64.
const storedPage = 200

// Stored returns the values that a cluster's etcd stores under all keys with a prefix, such as
// /registry/example.org/widgets/. All values are of the same revision. The keys of the result are complete. The caller
// owns the result. Custom resources are stored as JSON, but most other types are not.
//
// Stored reads from etcd, because an API server does not show the version in which an object is stored, or how the
// stored content differs from the converted content.
//
// Source: https://etcd.io/docs/v3.6/dev-guide/api_grpc_gateway/
func (v *View) Stored(ctx context.Context, cluster, prefix string) (map[string][]byte, error) {
	if prefix == "" {
		return nil, errors.New("reading what is stored: no prefix given")
	}
	at, err := v.cluster(cluster)
	if err != nil {
		return nil, err
	}
	client, err := httpClient(at.etcdCA, at.pairs[etcdClientFile])
	if err != nil {
		return nil, err
	}
	defer client.CloseIdleConnections()

	stored := map[string][]byte{}
	page := storedRange{Key: []byte(prefix), RangeEnd: after(prefix), Limit: storedPage}
	for {
		answer, err := page.read(ctx, client, at.Etcd)
		if err != nil {
			return nil, fmt.Errorf("reading what %s stores under %s: %w", cluster, prefix, err)
		}
		for _, kv := range answer.KVs {
			stored[string(kv.Key)] = kv.Value
		}
		if !answer.More || len(answer.KVs) == 0 {
			return stored, nil
		}
		page.Revision = answer.Header.Revision // The next pages have the same revision.
		page.Key = slices.Concat(answer.KVs[len(answer.KVs)-1].Key, []byte{0})
	}
}

// storedRange requests the keys from Key to RangeEnd from etcd, without RangeEnd itself.
type storedRange struct {
	Key      []byte `json:"key"`
	RangeEnd []byte `json:"range_end"`
	Limit    int64  `json:"limit"`
	// Revision is the revision to read; 0 for the latest.
	Revision int64 `json:"revision,string"`
}

// storedAnswer is etcd's response to a storedRange.
type storedAnswer struct {
	Header struct {
		Revision int64 `json:"revision,string"`
	} `json:"header"`
	KVs []struct {
		Key   []byte `json:"key"`
		Value []byte `json:"value"`
	} `json:"kvs"`
	More bool `json:"more"`
}

func (r storedRange) read(ctx context.Context, client *http.Client, etcd string) (*storedAnswer, error) {
	body, err := json.Marshal(r)
	if err != nil {
		return nil, err
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, etcd+"/v3/kv/range", bytes.NewReader(body))
	if err != nil {
		return nil, err
	}
	req.Header.Set("Content-Type", "application/json")
	resp, err := client.Do(req)
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	content, err := io.ReadAll(resp.Body)
	if err != nil {
		return nil, err
	}
	if resp.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("etcd answers %s: %s", resp.Status, bytes.TrimSpace(content))
	}
	answer := &storedAnswer{}
	if err := json.Unmarshal(content, answer); err != nil {
		return nil, fmt.Errorf("reading the answer of etcd: %w", err)
	}
	return answer, nil
}

// after returns the first key behind all keys with the prefix. If there is no such key, it returns a zero byte, which
// means no limit for etcd.
func after(prefix string) []byte {
	end := []byte(prefix)
	for len(end) > 0 {
		if last := len(end) - 1; end[last] < 0xff {
			end[last]++
			return end
		}
		end = end[:len(end)-1]
	}
	return []byte{0}
}
