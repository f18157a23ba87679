// Search runs in a worker, and browsers start no worker for a page that was opened as a file (file://).
// There, run the worker's script in a hidden frame instead, so that search works without a server and without a network.
if (location.protocol === "file:") {
  window.Worker = class extends EventTarget {
    onmessage = null;
    onerror = null;

    constructor(url) {
      super();
      this.frame = document.createElement("iframe");
      this.frame.hidden = true;
      document.body.append(this.frame);
      this.inside = this.frame.contentWindow;
      this.inside.postMessage = (data) => setTimeout(() => this.tell(new MessageEvent("message", { data })));
      this.inside.importScripts = (...urls) => urls.reduce((before, next) => before.then(() => this.load(next)), Promise.resolve());
      this.ready = this.load(url);
      this.ready.catch(() => this.tell(new Event("error")));
    }

    load(url) {
      return new Promise((done, failed) => {
        const script = this.inside.document.createElement("script");
        script.src = new URL(url, location.href).href;
        script.onload = done;
        script.onerror = failed;
        this.inside.document.body.append(script);
      });
    }

    tell(event) {
      const handler = this["on" + event.type];
      if (handler) handler.call(this, event);
      this.dispatchEvent(event);
    }

    postMessage(data) {
      this.ready.then(() => this.inside.dispatchEvent(new this.inside.MessageEvent("message", { data })), () => {});
    }

    terminate() {
      this.frame.remove();
    }
  };
}
