package control

import "time"

// EventRecord is one thing that happened to the daemon: a connection that came or went, a work request that
// failed, a program, an export, a warning. Words of RDMA_CM and of completions stand in Event as they are:
// "RDMA_CM_EVENT_ESTABLISHED", "IBV_WC_REM_ACCESS_ERR".
type EventRecord struct {
	Seq     uint64            `json:"seq" doc:"counts events from 1"`
	Time    time.Time         `json:"time" doc:"when it happened"`
	Level   string            `json:"level" doc:"INFO, WARN or ERROR"`
	Event   string            `json:"event" doc:"what happened"`
	Device  string            `json:"device,omitempty" doc:"where"`
	Session uint64            `json:"session,omitempty" doc:"whose it is"`
	Export  string            `json:"export,omitempty" doc:"whose it is, instead of a session"`
	Local   string            `json:"local,omitempty" doc:"address of a connection or listener"`
	Remote  string            `json:"remote,omitempty" doc:"address of the peer"`
	Error   string            `json:"error,omitempty" doc:"why"`
	Detail  map[string]string `json:"detail,omitempty" doc:"what else the log says"`
}
